import type {RefusedPublish} from "@crewel/client";
import {useChannel, useConnection, useOutbox} from "@crewel/client/react";
import {useEffect, useState} from "react";

import {connection} from "./crewel";

interface Order {
    pizza: string;
}

export function Orders() {
    const {state, reason} = useConnection(connection);
    const {waiting, publish} = useOutbox(connection);
    const [orders, setOrders] = useState<Order[]>([]);
    const [pizza, setPizza] = useState("");
    const [refused, setRefused] = useState<RefusedPublish[]>([]);
    const [failure, setFailure] = useState("");
    useEffect(() => {
        void connection.outbox.refused().then(setRefused);
    }, [waiting]); // a refused order waits no more
    const {error} = useChannel(connection, "/orders/today", (message) => {
        setOrders((before) => [...before, message.data as Order]);
    });
    return (
        <main>
            <p role="status" title={reason?.message}>
                {state}, {waiting} waiting
            </p>
            {error && <p role="alert">{error.message}</p>}
            {failure && <p role="alert">{failure}</p>}
            {refused.map(({key, data, message}) => (
                <p role="alert" key={key}>
                    {(data as Order).pizza} was refused: {message}
                </p>
            ))}
            <form
                onSubmit={(event) => {
                    event.preventDefault();
                    setPizza(""); // at once, so that a double click is one order
                    setFailure("");
                    publish("/orders/today", {pizza}).catch((problem: Error) => {
                        setPizza((typed) => typed || pizza);
                        setFailure(problem.message);
                    });
                }}
            >
                <label>
                    Pizza <input required value={pizza} onChange={(event) => setPizza(event.target.value)} />
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
