import {useChannel, useConnection, useOutbox} from "@crewel/client/react";
import {useState} from "react";

import {connection} from "./crewel";

interface Order {
    pizza: string;
}

export function Orders() {
    const {state, reason} = useConnection(connection);
    const {waiting, publish} = useOutbox(connection);
    const [orders, setOrders] = useState<Order[]>([]);
    const [pizza, setPizza] = useState("");
    const {error} = useChannel(connection, "/orders/today", (message) => {
        setOrders((before) => [...before, message.data as Order]);
    });
    return (
        <main>
            <p role="status" title={reason?.message}>
                {state}, {waiting} waiting
            </p>
            {error && <p role="alert">{error.message}</p>}
            <form
                onSubmit={(event) => {
                    event.preventDefault();
                    void publish("/orders/today", {pizza}).then(() => setPizza(""));
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
