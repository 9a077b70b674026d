/*
 * Drives the official cometd client: `node cometd.mjs 9|8|7|3`. One process is one browser, with its own cookies.
 */
import {adapt} from "cometd-nodejs-client";
import {obey, tell as tellTest} from "./wire.mjs";

adapt();

// The reload extension keeps the session here while a page is replaced.
const kept = new Map();
window.sessionStorage = {
    getItem: name => kept.get(name) ?? null,
    setItem: (name, value) => kept.set(name, value),
    removeItem: name => kept.delete(name)
};

const EXTENSIONS = {
    ack: "AckExtension",
    binary: "BinaryExtension",
    reload: "ReloadExtension",
    timesync: "TimeSyncExtension"
};

/** Returns the library's classes. Versions 8 and 9 are ES modules; the older ones are CommonJS, an extension a file. */
async function load(version) {
    const name = version === "9" ? "cometd" : `cometd-${version}`;
    if (version === "9" || version === "8") {
        return import(name);
    }
    const classes = {CometD: (await import(name)).default.CometD};
    for (const extension of Object.values(EXTENSIONS)) {
        classes[extension] = (await import(`${name}/${extension}.js`)).default;
    }
    return classes;
}

const library = await load(process.argv[2]);

let client;
let options;
let subscriptions;      // by channel: the client library's handle
let clientId;
let page = {};          // the one that is open now

/**
 * Returns a function that tells the test something as long as this page is open. The client of a page that was reloaded still
 * gets what is on its way to its closing socket. In a browser no code of that page runs any more, so here it is not heard.
 */
function teller() {
    const mine = page;
    return line => mine === page && !options.untold.includes(line.event) && tellTest(line);
}

/** Tells what goes over the wire, below everything that the client library does with it. */
class Witness {
    tell = teller();

    incoming(message) {
        if (message.data !== undefined) {
            this.tell({event: "delivered", channel: message.channel, id: message.id ?? null, data: message.data});
        }
        if (message.channel === "/meta/connect" && message.advice?.reconnect === "none") {
            this.tell({event: "ended"});
        }
        return message;
    }

    outgoing(message) {
        if (message.channel === "/meta/connect") {
            this.tell({event: "connecting", transport: message.connectionType, ack: message.ext?.ack ?? null});
        } else if (message.data !== undefined) {
            this.tell({event: "publishing", channel: message.channel});
        }
        return message;
    }
}

function transportType() {
    const transport = client.getTransport();
    return transport.type ?? transport.getType();       // a method up to version 7
}

function listen(channel) {
    const tell = teller();
    return new Promise(resolve => {
        const handle = client.subscribe(channel, message => {
            tell({event: "message", subscription: channel, channel: message.channel, data: plain(message.data)});
        }, reply => {
            if (reply.successful) {
                tell({event: "subscribed", channel});
            }
            resolve(outcome(reply));
        });
        subscriptions.set(channel, handle);
    });
}

/** Returns the data with the bytes that the binary extension has decoded as a list of numbers. */
function plain(data) {
    return data?.data instanceof ArrayBuffer ? {...data, data: [...new Uint8Array(data.data)]} : data;
}

function outcome(reply) {
    return {successful: reply.successful, error: reply.error ?? null, published: reply.ext?.publish ?? null};
}

/** Subscriptions end with their session, so an application subscribes again after each further handshake. */
function resubscribe() {
    client.batch(() => [...subscriptions.keys()].forEach(listen));
}

function watch() {
    const tell = teller();
    client.addListener("/meta/handshake", reply => {
        if (reply.successful) {
            clientId = reply.clientId;
            tell({event: "handshaken", clientId: reply.clientId, reload: reply.ext?.reload === true, ext: reply.ext ?? {}});
            resubscribe();
        }
    });
    client.addListener("/meta/connect", reply => {
        if (reply.successful) {
            tell({event: "connected", clientId, ack: reply.ext?.ack ?? null, advice: reply.advice ?? null});
        }
    });
    client.addListener("/meta/unsuccessful", reply => {
        tell({event: "unsuccessful", channel: reply.channel, error: reply.error ?? null, advice: reply.advice ?? null});
    });
    client.onTransportException = (failure, oldType, newType) => {
        tell({event: "transport", from: oldType, to: newType});
    };
}

function open() {
    client = new library.CometD();
    for (const type of ["websocket", "long-polling", "callback-polling"]) {
        if (!options.transports.includes(type)) {
            client.unregisterTransport(type);
        }
    }
    // The first extension sees what comes in before all others, and what goes out after them.
    client.registerExtension("witness", new Witness());
    for (const name of options.extensions) {
        client.registerExtension(name, new library[EXTENSIONS[name]]());
    }
    client.configure({url: options.url, logLevel: "warn", backoffIncrement: 20, maxBackoff: 200, ...options.configure});
    watch();
    return new Promise(resolve => {
        const first = client.addListener("/meta/connect", reply => {
            if (reply.successful) {
                client.removeListener(first);
                resolve({clientId: client.getClientId(), transport: transportType()});
            }
        });
        client.handshake();
    });
}

obey({
    open(command) {
        options = command;
        subscriptions = new Map();
        return open();
    },
    subscribe: ({channel}) => listen(channel),
    unsubscribe: ({channel}) => new Promise(resolve => {
        client.unsubscribe(subscriptions.get(channel), reply => resolve(outcome(reply)));
        subscriptions.delete(channel);
    }),
    publish: ({channel, data, props}) => new Promise(resolve => {
        client.publish(channel, data, props ?? {}, reply => resolve(outcome(reply)));
    }),
    publishBinary: ({channel, bytes}) => new Promise(resolve => {
        client.publishBinary(channel, Uint8Array.from(bytes), true, {name: "bytes"}, reply => resolve(outcome(reply)));
    }),
    async batch({messages}) {
        let replies;
        client.batch(() => {
            replies = messages.map(({channel, data, props}) => new Promise(resolve => {
                client.publish(channel, data, props ?? {}, reply => resolve(outcome(reply)));
            }));
        });
        return {replies: await Promise.all(replies)};
    },
    call: ({target, data}) => new Promise(resolve => {
        client.remoteCall(target, data, 5000, reply => resolve({...outcome(reply), data: reply.data ?? null}));
    }),
    /** What a page does that is reloaded: the old client is dropped, a new one goes on with the session. */
    reload() {
        client.reload();
        page = {};
        return {};
    },
    loaded: () => open(),
    disconnect: () => new Promise(resolve => {
        client.disconnect(reply => resolve(outcome(reply)));
    })
});
