import {StrictMode, useState} from "react";
import {createRoot} from "react-dom/client";

import {connect, useConnection, useMessages} from "./crewel";

const asked = new URLSearchParams(location.search);
const connection = connect(asked.get("server") ?? "http://127.0.0.1:8080/cometd", asked.get("name") ?? "shop/1");

interface Order {
    pizza: string;
}

function Orders() {
    const state = useConnection(connection);
    const orders = useMessages<Order>(connection, "/orders/today");
    const [pizza, setPizza] = useState("");
    return (
        <main>
            <p role="status">{state}</p>
            <form
                onSubmit={(event) => {
                    event.preventDefault();
                    void connection.outbox.publish("/orders/today", {pizza}).then(() => setPizza(""));
                }}
            >
                <label>
                    Pizza <input value={pizza} onChange={(event) => setPizza(event.target.value)} />
                </label>
                <button>Order</button>
            </form>
            <ul>
                {orders.map((order, index) => (
                    <li key={index}>{order.pizza}</li>
                ))}
            </ul>
        </main>
    );
}

createRoot(document.getElementById("root")!).render(
    <StrictMode>
        <Orders />
    </StrictMode>
);
