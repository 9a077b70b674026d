import {connect} from "@crewel/client";

interface Order {
    pizzas: number;
}

const CHANNEL = "/orders/today";
const address = new URLSearchParams(location.search).get("server") ?? import.meta.env.VITE_CREWEL_URL ?? "http://127.0.0.1:8080/cometd";
const form = document.querySelector("form")!;
const amount = form.querySelector<HTMLInputElement>("input[name=pizzas]")!;
const status = document.querySelector("[role=status]")!;
const list = document.querySelector("ul")!;

function show(text: string): void {
    const line = document.createElement("li");
    line.textContent = text;
    list.append(line);
}

const connection = connect({
    url: address,
    outbox: {onRefused: publish => show(`refused: ${publish.message}`)},
});
connection.on("status", ({state, reason}) => {
    status.textContent = reason ? `${state}: ${reason.message}` : state;
});
connection.on("rejected", ({error}) => show(`rejected: ${error.message}`));

connection.subscribe(CHANNEL, message => {
    const order = message.data as Order;
    if (order.pizzas > 10) {
        throw new Error("the oven is too small"); // the message is rejected, and becomes a dead letter
    }
    show(`${order.pizzas} pizzas`);
}).catch((error: Error) => show(error.message));

form.addEventListener("submit", event => {
    event.preventDefault();
    const order: Order = {pizzas: amount.valueAsNumber};
    connection.outbox.publish(CHANNEL, order).catch((error: Error) => show(`not kept: ${error.message}`));
});
