/**
 * Remote calls that wait for their answer.
 */

import {get} from "./api.js";
import {filters, h, missing, swap, table} from "./elements.js";
import {ago, things} from "./format.js";

const PAGE = 100;

export function requests({query, go}) {
    const asked = Object.fromEntries(query);
    const form = filters([["channel", "Channel begins with", "search"], ["caller", "Caller begins with: client/joe"]], asked, go);
    const list = h("div", {class: "stack"});
    const element = h("div", {class: "stack"}, h("h1", {}, "Requests"), form, list);

    async function refresh() {
        const told = await get("/requests", {channel: asked.channel, caller: asked.caller, count: PAGE});
        swap(list,
            missing(told, "calls that wait there are missing here"),
            h("p", {class: "hint"}, `${things(told.count, "remote call")} to services of the server, the longest first. The server does not know requests between clients.`),
            table("Requests", ["Channel", "Caller", "Since", "Message"], told.requests.map(row), asked.channel || asked.caller ? "No call that is waiting matches." : "No call is waiting. A client's remote call stands here until the service of the server has answered it."));
    }

    return {element, refresh, everyMs: 3000};
}

function row(each) {
    const href = `#/receivers/${each.caller.split("/").map(encodeURIComponent).join("/")}`;
    return [each.channel, each.caller ? h("a", {href}, each.caller) : "a session without a name", ago(each.since), each.id ?? ""];
}
