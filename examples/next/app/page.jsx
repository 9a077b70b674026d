"use client";

import {useChannel, useConnection, useOutbox} from "@crewel/client/react";
import {useState} from "react";

import {connection} from "./connection";

export default function Orders() {
    const {state} = useConnection(connection);
    const {waiting, publish} = useOutbox(connection);
    const [pizzas, setPizzas] = useState(0);
    useChannel(connection, "/orders/today", (message) => setPizzas((before) => before + message.data.pizzas));
    return (
        <main>
            <p role="status">
                {state}, {waiting} waiting, {pizzas} pizzas
            </p>
            <button onClick={() => publish("/orders/today", {pizzas: 1})}>Order</button>
        </main>
    );
}
