/**
 * The overview: what is wrong, with its cause and where to mend it; the figures of now; the last hour.
 */

import {get} from "./api.js";
import {Chart} from "./charts.js";
import {facts, h, missing, parts, swap, table} from "./elements.js";
import {ago, bytes, count, figure, span, things, time, took} from "./format.js";

const HOUR_MS = 3_600_000;
const MINUTE = 60;
/** How often the page asks although the live feed brings what is new. */
const LIVE_MS = 60_000;

/** The samples of the last hour, gathered from answers that each have those since the one before. */
class Samples {
    constructor() {
        this.columns = null;
    }

    get newest() {
        return Math.floor(this.columns?.at.at(-1) ?? 0);
    }

    add(more, now) {
        this.columns ??= Object.fromEntries(Object.keys(more).map((name) => [name, []]));
        const first = this.columns.at.findIndex((at) => at >= now - HOUR_MS);
        const last = this.newest;
        const fresh = more.at.map((at) => at > last + 1);
        for (const [name, values] of Object.entries(this.columns)) {
            this.columns[name] = [...values.slice(Math.max(first, 0)), ...more[name].filter((_, index) => fresh[index])];
        }
    }

    last(name) {
        return this.columns[name].at(-1);
    }
}

/** The last answer, for a visit while the server cannot be reached. */
let last = null;

export function overview({has}) {
    const samples = new Samples();
    const charts = [
        new Chart("Messages", "per second", [{column: "published", label: "in"}, {column: "delivered", label: "out"}]),
        new Chart("Time to acknowledgement", "", [
            {column: "p50", label: "half"}, {column: "p95", label: "95 %"}, {column: "p99", label: "99 %"}], took),
        new Chart("Failures", "per minute", [
            {column: "deadLetters", label: "dead letters", factor: MINUTE},
            {column: "redelivered", label: "sent again", factor: MINUTE},
            {column: "dropped", label: "dropped", factor: MINUTE}]),
        new Chart("Backlog", "messages", [{column: "waiting", label: "waiting"}]),
        new Chart("Sessions", "", [{column: "sessions", label: "all"}, {column: "connected", label: "connected"}]),
        new Chart("Refused requests", "per second", [{column: "refused", label: "refused"}]),
    ];
    const wrong = h("section", {"aria-labelledby": "wrongTitle", class: "wrong"});
    const tiles = h("dl", {class: "tiles"});
    const tables = h("div", {class: "cards"});
    const servers = h("div", {class: "stack"});
    const stale = h("p", {class: "hint", hidden: true});
    const element = h("div", {class: "stack"},
        h("h1", {class: "unseen"}, "Overview"), stale, wrong, tiles,
        h("div", {class: "charts"}, charts.map((chart) => chart.element)), tables, servers);

    async function refresh() {
        // Nodes are asked of the store, and the overview says if that cannot be used.
        const [told, {nodes}] = await Promise.all([get("/overview", {after: samples.newest}), get("/nodes").catch(() => ({nodes: []}))]).catch(async (error) => {
            if (last !== null) {
                await (samples.columns === null ? draw({...last, samples: last.all}) : null);
                stale.textContent = `The last known figures, as of ${time(last.at)}.`;
                stale.hidden = false;
                element.classList.add("stale");
            }
            throw error;
        });
        swap(servers, ...nodes.length > 1 ? nodeTable(nodes, told) : []);
        await draw(told);
    }

    /** What the live feed brings, once the last hour is there. */
    const show = (told) => samples.columns === null ? undefined : draw(told);

    async function draw(told) {
        samples.add(told.samples, told.at);
        last = {...told, all: samples.columns};
        stale.hidden = true;
        element.classList.remove("stale");
        swap(wrong, h("h2", {id: "wrongTitle"}, title(told.findings)), ...told.findings.map((each) => finding(each, has)));
        swap(tiles, ...figures(told, samples));
        swap(tables, sessions(told.sessions), store(told));
        await Promise.all(charts.map((chart) => chart.show(samples.columns)));
    }

    return {element, refresh, show, everyMs: 5000, liveMs: LIVE_MS, hears: ["held", "released", "died", "job"], close: () => charts.forEach((chart) => chart.close())};
}

/** The servers that share the store. What is above is of all that answer. */
function nodeTable(nodes, told) {
    return [
        h("h2", {}, "Nodes"),
        h("p", {class: "hint"}, `Figures, charts and problems are of all nodes; the running time is that of ${told.node}.`),
        missing(told, "what is there is missing above"),
        table("Nodes", ["Node", "State", {text: "Stored sessions", class: "number"}, "Since", "Process"], nodes.map((each) => [
            each.own ? h("strong", {}, each.node) : each.node,
            h("span", {class: `mark ${each.state === "ALIVE" ? "good" : "bad"}`}, each.state), count(each.sessions), ago(each.since), each.process])),
    ];
}

function title(findings) {
    return findings.length === 0 ? "Nothing is wrong" : `What is wrong: ${findings.length}`;
}

function finding(each, has) {
    return h("article", {class: `finding ${each.level}`},
        h("h3", {}, each.link !== "/" && has(each.link) ? h("a", {href: `#${each.link}`}, each.title) : each.title),
        h("p", {}, each.node ? h("span", {class: "mark", title: "Node"}, each.node) : "", each.node ? " " : "", each.cause),
        h("p", {class: "hint"}, each.advice));
}

function tile(name, value, hint, href) {
    return h("div", {}, h("dt", {}, name), h("dd", {}, href ? h("a", {href}, value) : value, hint ? h("span", {class: "hint"}, ` ${hint}`) : null));
}

function figures({sessions: all, store: kept}, samples) {
    return [
        tile("In", figure(samples.last("published")), "/s"),
        tile("Out", figure(samples.last("delivered")), "/s"),
        tile("Time to acknowledge, 99 %", ...acknowledgement(samples)),
        tile("Waiting", count(all.waiting + all.queued), all.queued ? `of these ${count(all.queued)} for subjects and groups` : "", "#/receivers?sort=waiting"),
        tile("Sessions", count(all.count - all.pages), all.pages ? `and ${things(all.pages, "page")}` : "", "#/receivers"),
        tile("On hold", count(all.held), "", "#/receivers?held=true"),
        tile("Dead letters", kept.kept ? count(kept.letters) : "–", "", "#/dead-letters"),
    ];
}

/** The newest time that is known, and when that was: there may be no acknowledgement at present. */
function acknowledgement({columns}) {
    const known = columns.p99.findLastIndex((value) => value !== null && value !== undefined && !Number.isNaN(value));
    return known < 0 ? ["–"] : [took(columns.p99[known]), known === columns.p99.length - 1 ? "" : `at ${time(columns.at[known]).slice(11, 16)}`];
}

function sessions(all) {
    const rows = (counts) => Object.entries(counts).sort().map(([name, number]) => [name, count(number)]);
    return h("section", {class: "card"}, h("h2", {}, "Sessions"),
        facts([...rows(all.states), ["named by the server", count(all.unnamed)], ["pages like this one", count(all.pages)]]),
        h("h3", {}, "By transport"), facts(rows(all.transports)));
}

function store({store: kept, uptimeMs}) {
    const most = kept.maxMemory ? ` of ${bytes(kept.maxMemory)}` : "";
    return h("section", {class: "card"}, h("h2", {}, "Server and store"), facts([
        ["Server runs for", span(uptimeMs)],
        ["Store", !kept.kept ? "none: nothing is stored" : kept.trouble ?? "in order"],
        ["Memory of the store", kept.kept ? bytes(kept.usedMemory) + most : ""],
        ["Dead letters dropped", kept.lettersDropped ? count(kept.lettersDropped) : ""],
    ]), kept.codes.length ? [h("h3", {}, "Dead letters by code"),
        facts(kept.codes.map((each) => [h("a", {href: `#/dead-letters?code=${encodeURIComponent(each.value)}`}, parts(each.value, ".")), count(each.count)]))] : null);
}
