/* `crewel mock salesforce` in a process of its own, controlled over HTTP. */
import {spawn} from "node:child_process";
import {createInterface} from "node:readline";

export class Mock {
    #process;
    #addresses = {};

    async start() {
        this.#process = spawn(process.env.CREWEL ?? "crewel", ["mock", "salesforce"], {stdio: ["ignore", "pipe", "inherit"]});
        for await (const line of createInterface({input: this.#process.stdout})) {
            const [name, value] = line.split(" ");
            this.#addresses[name] = value;
            if (name === "ready") {
                return this;
            }
        }
        throw new Error("crewel mock salesforce ended");
    }

    get loginUrl() {
        return this.#addresses.login;
    }

    /** One request to the control address. */
    async call(method, path, body) {
        const response = await fetch(`${this.#addresses.control}/_mock/${path}`, {method, body: body && JSON.stringify(body)});
        const answer = await response.json();
        if (!response.ok) {
            throw new Error(answer.error);
        }
        return answer;
    }

    stop() {
        this.#process.kill();
    }
}
