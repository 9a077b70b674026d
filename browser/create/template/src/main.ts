import {connect} from "./crewel.ts";

interface Order {
    pizzas: number;
}

const CHANNEL = "/orders/today";
const form = document.querySelector("form")!;
const amount = form.querySelector<HTMLInputElement>("input[name=pizzas]")!;
const status = document.querySelector("[role=status]")!;
const list = document.querySelector("ul")!;

function show(text: string): void {
    const line = document.createElement("li");
    line.textContent = text;
    list.append(line);
}

const {cometd, outbox} = connect({
    onStatus: text => { status.textContent = text; },
    // After each handshake, because a new session has no subscriptions.
    onConnected: () => cometd.subscribe(CHANNEL, message => {
        const order = message.data as Order;
        if (order.pizzas > 10) {
            throw new Error("the oven is too small"); // the message is rejected, and becomes a dead letter
        }
        show(`${order.pizzas} pizzas`);
    }),
});
cometd.onListenerException = (error: Error) => show(`rejected: ${error.message}`);

form.addEventListener("submit", event => {
    event.preventDefault();
    const order: Order = {pizzas: amount.valueAsNumber};
    outbox.publish(CHANNEL, order).catch((error: Error) => show(`not kept: ${error.message}`));
});

cometd.handshake();
