/* Consumes one channel of Salesforce's streaming API with jsforce. jsforce logs in, and its Faye client makes a new session by
 * itself when one is lost; the extension Replay lets that one begin after the last event. What neither of them does is here:
 * a new login when the token was revoked. */
import jsforce from "jsforce";
import {StreamingExtension} from "jsforce/lib/api/streaming.js";

const NEW_EVENTS = -1;

export class Consumer {
    #login;
    #channel;
    #handle;
    #position = NEW_EVENTS;
    #client;

    /** `login` is {loginUrl, username, password}; `handle` gets the payload of each event. */
    constructor(login, channel, handle) {
        this.#login = login;
        this.#channel = channel;
        this.#handle = handle;
    }

    async start() {
        const connection = new jsforce.Connection({loginUrl: this.#login.loginUrl, version: "60.0"});
        await connection.login(this.#login.username, this.#login.password);
        const client = connection.streaming.createClient([
            new StreamingExtension.AuthFailure(() => this.#again(client)),
            new StreamingExtension.Replay(this.#channel, this.#position)
        ]);
        this.#client = client;
        await client.subscribe(this.#channel, (event) => {
            this.#position = event.event.replayId;
            this.#handle(event.payload);
        });
    }

    async #again(client) {
        if (client === this.#client) {
            this.#client = undefined;
            client.disconnect(); // its promise stays pending: the server refuses that, too
            await this.start();
        }
    }

    stop() {
        this.#client?.disconnect();
    }
}
