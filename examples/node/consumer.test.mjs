import assert from "node:assert/strict";
import {EventEmitter, once} from "node:events";
import {afterEach, beforeEach, test} from "node:test";
import {Consumer} from "./consumer.mjs";
import {Mock} from "./mock.mjs";

const ORDERS = "/event/Order__e";
let mock;
let consumer;
let handled;
const news = new EventEmitter();

const publish = (number) => mock.call("POST", "publish", {channel: ORDERS, data: {No__c: number}});

async function receives(...numbers) {
    while (handled.length < numbers.length) {
        await once(news, "order");
    }
    assert.deepEqual(handled, numbers);
}

beforeEach(async () => {
    mock = await new Mock().start();
    handled = [];
    const login = {loginUrl: mock.loginUrl, username: "user@example.com", password: "secret"};
    consumer = new Consumer(login, ORDERS, (payload) => {
        handled.push(payload.No__c);
        news.emit("order");
    });
    await consumer.start();
    await mock.call("POST", "wait", {channel: ORDERS, timeout_ms: 60_000});
    await publish(1);
    await receives(1);
});

afterEach(async () => {
    consumer.stop();
    mock.stop();
});

test("a lost session loses no order", async () => {
    await mock.call("POST", "forget");
    await publish(2);
    await receives(1, 2);
    assert.deepEqual(await mock.call("GET", "missed"), {missed: {}});
});

test("a revoked token loses no order", async () => {
    await mock.call("POST", "revoke");
    await publish(2);
    await receives(1, 2);
});
