/**
 * The overview: what is wrong, with its cause and where to repair it; the figures of now; the last hour.
 */

import {get} from "./api.js";
import {Chart} from "./charts.js";
import {WORDS, advice} from "./conditions.js";
import {coded, facts, h, isNarrow, missing, parts, swap, table} from "./elements.js";
import {ago, bytes, capital, clock, count, figure, span, things, time, took} from "./format.js";
import {Samples} from "./samples.js";
import {pastOutages, shortTimeline} from "./timeline.js";

/** How a session stands at least. */
const PRESENCE = ["connected", "away"];
/** Past troubles that are shown at once; of more, the figures below would be off the screen. */
const OVER = 3;
/** How often the page asks although the live feed brings what is new. */
const LIVE_MS = 60_000;

/** The last answer, for a visit while the server cannot be reached. */
let last = null;

export function overview({query, has, badges}) {
    const samples = new Samples();
    const charts = [
        new Chart("Messages", "per second", [{column: "published", label: "in"}, {column: "delivered", label: "out"}]),
        new Chart("Time to acknowledgement", "", [
            {column: "p50", label: "half within"}, {column: "p95", label: "95 % within"}, {column: "p99", label: "99 % within"}], took),
        new Chart("Failures", "in the minute before", [
            {column: "deadLettersInMinute", label: "dead letters"},
            {column: "redeliveredInMinute", label: "sent again"},
            {column: "droppedInMinute", label: "dropped"}]),
        new Chart("Backlog", "messages", [{column: "backlog", label: "waiting"}]),
        new Chart("Sessions", "", [{column: "sessions", label: "all"}, {column: "connected", label: "connected"}]),
        new Chart("Refused requests", "per second", [{column: "refused", label: "refused"}]),
    ];
    const wrong = h("section", {"aria-labelledby": "wrongTitle", class: "wrong"});
    const past = h("section", {"aria-label": "Over", class: "wrong"});
    const tiles = h("dl", {class: "tiles"});
    const tables = h("div", {class: "cards"});
    const servers = h("div", {class: "stack"});
    const day = h("section", {class: "stack"});
    const stale = h("p", {class: "hint", hidden: true});
    const element = h("div", {class: "stack"},
        h("h1", {class: "unseen"}, "Overview"), stale, wrong, past, tiles,
        h("div", {class: "charts"}, charts.map((chart) => chart.element)), tables, servers, day);

    /** The nodes and what happened, as of the last request: their ages grow with each event of the live feed. */
    let around = {nodes: [], happened: null};
    /** The part of the view that a finding leads to, until it is on screen. */
    let wanted = query.get("show");
    let wasReady = true;

    async function refresh() {
        const [told, happened] = await Promise.all([get("/overview", {after: samples.newest}), get("/timeline").catch(() => null)]).catch(async (error) => {
            if (last !== null) {
                await (samples.columns === null ? draw({...last, samples: last.all}) : null);
                stale.textContent = `The last known figures, as of ${time(last.at)}.`;
                stale.hidden = false;
                element.classList.add("stale");
            }
            throw error;
        });
        // Nodes are asked of the store, and the overview says if that cannot be used.
        const {nodes} = told.nodes && told.store.trouble === null ? await get("/nodes").catch(() => ({nodes: []})) : {nodes: []};
        around = {nodes, happened};
        await draw(told);
    }

    /** What the live feed brings, once the last hour is there. */
    const show = (told) => {
        const isReady = !told.findings.some(({key}) => key.startsWith("not-ready"));
        const isSame = isReady === wasReady;
        wasReady = isReady;
        return samples.columns === null ? undefined : isSame ? draw(told) : refresh();
    };

    async function draw(told) {
        samples.add(told.samples, told.at, told.everyMs);
        last = {...told, all: samples.columns};
        badges(told);
        stale.hidden = true;
        element.classList.remove("stale");
        const {nodes, happened} = around;
        const severalNodes = (told.nodes?.length ?? 1) > 1;
        swap(wrong, h("h2", {id: "wrongTitle"}, title(told.findings)), ...told.findings.map((each) => finding({...each, severalNodes}, has)));
        const over = [...happened === null ? [] : pastOutages(happened), ...(told.over ?? []).map((each) => ended({...each, severalNodes}, has))];
        past.hidden = over.length === 0;
        const rest = over.slice(OVER);
        swap(past, h("h2", {}, `Over, in the last hour: ${over.length}`), ...over.slice(0, OVER),
            rest.length ? h("details", {class: "wrong", "data-key": "over"}, h("summary", {}, `${things(rest.length, "earlier one")}`), rest) : "");
        swap(servers, ...nodes.length > 1 ? nodeTable(nodes, told) : []);
        swap(day, ...happened === null ? [] : shortTimeline(happened));
        swap(tiles, ...figures(told, samples));
        swap(tables, sessions(told.sessions, told.store), store(told, samples));
        await Promise.all(charts.map((chart) => chart.show(samples.columns, now(told))));
        if (wanted !== null) {
            element.querySelector(`[data-part="${CSS.escape(wanted)}"]`)?.scrollIntoView();
            wanted = null;
        }
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
            h("span", {class: `mark ${each.state === "ALIVE" ? "good" : "bad"}`, title: `State in the API: ${each.state}.`}, each.state === "ALIVE" ? "running" : "gone"), count(each.sessions), ago(each.since), each.process])),
    ];
}

function title(findings) {
    return findings.length === 0 ? "Nothing is wrong" : `What is wrong: ${findings.length}`;
}

/** One thing that is wrong, and what to do. Of several receivers, each has its own line: the last one may have come just now. */
function finding(each, has) {
    const receivers = each.count > 1 ? each.receivers ?? [] : [];
    const [only] = each.count === 1 ? each.receivers ?? [] : [];
    const more = each.count - receivers.length;
    return h("article", {class: `finding ${each.level}`},
        h("h3", {}, has(each.link) ? h("a", {href: `#${each.link}`}, each.title) : each.title, since(each.since)),
        receivers.length ? h("ul", {class: "of"}, receivers.map((one) => h("li", {}, nodesOf({nodes: one.node ? [one.node] : [], severalNodes: each.severalNodes}), h("span", {class: "named"}, h("a", {href: `#${one.link}`}, one.title), ":"), " ", coded(one.cause), away(one), since(one.since))), more > 0 ? h("li", {}, h("a", {href: `#${each.link}`}, `and ${count(more)} more`)) : null)
            : h("p", {}, nodesOf(each), coded(capital(each.cause)), only && away(only)),
        h("p", {class: "hint advice"}, advice(each.advice, only?.name)));
}

/** Since when it is so, if that is known; on a telephone without the date. */
function since(at) {
    return at ? h("span", {class: "hint"}, " since ", h("span", {class: "id"}, isNarrow() ? clock(at) : time(at)), `, ${span(Date.now() - at)} ago`) : "";
}

/** Since when its client is away, of a queue that is full. */
function away({awaySince}) {
    return awaySince ? h("span", {class: "hint"}, " (away", since(awaySince), ")") : "";
}

/** One thing that was wrong: it stays in view for an hour, calmly. */
function ended(each, has) {
    const lasted = span(each.until - each.since);
    return h("article", {class: "finding info"},
        h("h3", {}, has(each.link) ? h("a", {href: `#${each.link}`}, each.title) : each.title,
            h("span", {class: "hint"}, ` for ${lasted}, from `, h("span", {class: "id"}, time(each.since)), " to ", h("span", {class: "id"}, time(each.until)), `, ${span(Date.now() - each.until)} ago`)),
        h("p", {}, nodesOf(each), coded(capital(each.cause))));
}

function nodesOf({nodes, severalNodes}) {
    return nodes?.length && severalNodes ? [h("span", {class: "mark", title: nodes.length === 1 ? "Node" : "Nodes"}, nodes.join(", ")), " "] : "";
}

function tile(name, value, hint, href) {
    return h("div", {}, h("dt", {}, name), h("dd", {}, href ? h("a", {href}, value) : value, hint ? h("span", {class: "hint"}, ` ${hint}`) : null));
}

/** The figures of this moment, which tiles, legends and lists share. The newest sample may be some seconds older. */
function now({sessions: all}) {
    return {backlog: all.waiting + all.queued, sessions: all.count - all.pages, connected: all.conditions.connected ?? 0};
}

function figures(told, samples) {
    const {sessions: all, store: kept} = told;
    const {backlog, sessions: number} = now(told);
    return [
        tile("In", figure(samples.last("published")), "/s"),
        tile("Out", figure(samples.last("delivered")), "/s"),
        tile("99 % acknowledged in", ...acknowledgement(samples)),
        tile("Waiting", count(backlog), [all.queued ? `${count(all.queued)} of these for subjects and groups` : "", kept.unknownSince ? `as known at ${clock(kept.unknownSince)}` : ""].filter(Boolean).join("; "), "#/receivers?sort=waiting"),
        kept.unknownSince && number === 0 ? tile("Sessions", "unknown", `since ${clock(kept.unknownSince)}`, "#/receivers")
            : tile("Sessions", count(number), [all.pages ? `and ${things(all.pages, "page")}` : "", kept.unknownSince ? `as known at ${clock(kept.unknownSince)}` : ""].filter(Boolean).join("; "), "#/receivers"),
        tile("On hold", count(all.held), "", `#/receivers?condition=${encodeURIComponent("on hold")}`),
        tile("Dead letters", ...!kept.kept ? ["–", ""] : kept.unknownSince ? ["unknown", `since ${clock(kept.unknownSince)}`] : [count(kept.letters), ""], "#/dead-letters"),
    ];
}

/** The newest time that is known, and when that was: there may be no acknowledgement at present. */
function acknowledgement({columns}) {
    const known = columns.p99.findLastIndex((value) => value !== null && value !== undefined && !Number.isNaN(value));
    return known < 0 ? ["–"] : [took(columns.p99[known]), known === columns.p99.length - 1 ? "" : `at ${clock(columns.at[known])}`];
}

/** How the sessions stand. Each is connected or away; the others say how many of them are something else as well. */
function sessions(all, {unknownSince}) {
    if (all.count === all.pages && unknownSince) {
        return h("section", {class: "card"}, h("h2", {}, "Sessions"), h("p", {}, `Unknown since ${clock(unknownSince)}.`));
    }
    const link = (word) => h("a", {href: `#/receivers?kind=session&condition=${encodeURIComponent(word)}`}, word);
    const rows = (words) => words.map((word) => [link(word), count(all.conditions[word] ?? 0)]);
    const others = WORDS.filter((word) => !PRESENCE.includes(word) && all.conditions[word]);
    return h("section", {class: "card"}, h("h2", {}, "Sessions"),
        facts([...rows(PRESENCE), ["without a name", all.unnamed ? count(all.unnamed) : ""], ["pages like this one", all.pages ? count(all.pages) : ""]]),
        others.length ? [h("h3", {}, "Of these"), facts(rows(others))] : null,
        h("h3", {}, "By transport"), facts(Object.entries(all.transports).sort().map(([name, number]) => [name === "none" ? "between two requests, or away" : name, count(number)])));
}

function store({store: kept, uptimeMs, findings}, samples) {
    const refuses = findings.find(({key}) => key === "not-ready-store");
    const lately = (name) => samples.columns?.[name]?.at(-1);
    const most = kept.maxMemory ? ` of ${bytes(kept.maxMemory)}` : "";
    const unknown = kept.unknownSince ? `unknown since ${clock(kept.unknownSince)}` : "";
    return h("section", {class: "card", "data-part": "store"}, h("h2", {}, "Server and store"), facts([
        ["Server runs for", span(uptimeMs)],
        ["Store", !kept.kept ? "none: nothing is stored" : kept.trouble ?? refuses?.cause ?? "in order"],
        ["Memory of the store", kept.kept ? unknown || bytes(kept.usedMemory) + most : ""],
        ["Load of the store", kept.load ? load(kept.load) : ""],
        ["Stored publishes in groups of", lately("groups") ? figure(lately("stored") / lately("groups")) : ""],
        ["Entries of other nodes", lately("foreign") ? `${figure(lately("foreign"))} a second` : ""],
        ["Disk of the store", kept.disk ? disk(kept.disk) : ""],
        ["File of the store", kept.disk ? bytes(kept.disk.file) : ""],
        ["Memory of dead letters", kept.lettersBytes || unknown ? unknown || `${bytes(kept.lettersBytes)} of ${bytes(kept.lettersMaxBytes)}` : ""],
        ["Dead letters dropped", kept.lettersDropped ? count(kept.lettersDropped) : ""],
    ]), kept.messagesHeld?.length ? [h("h3", {}, "Stored messages by account"), h("p", {class: "hint"}, kept.accountMaxBytes === null ? "" : `At present, one account may have ${bytes(kept.accountMaxBytes)}.`),
        facts(kept.messagesHeld.map((each) => [each.account || "the server and sessions without a name", `${count(each.messages)}, ${bytes(each.bytes)}`]))] : null, kept.lettersHeld?.length ? [h("h3", {}, "Dead letters by account"),
        facts(kept.lettersHeld.map((each) => [h("a", {href: `#/dead-letters?receiver=${encodeURIComponent(each.account)}`}, parts(each.account, "/")), `${count(each.letters)}, ${bytes(each.bytes)}`]))] : null, kept.codes.length ? [h("h3", {}, "Dead letters by code"),
        facts(kept.codes.map((each) => [h("a", {href: `#/dead-letters?code=${encodeURIComponent(each.value)}`}, parts(each.value, ".")), count(each.count)]))] : null);
}

/** What the thread of the store, which cannot use more than one core, has done in the last minute. */
function load({busy, diskWait, steps}) {
    const waits = diskWait === null ? "" : `, waits for its disk ${Math.round(diskWait * 100)} % of the time`;
    return `${Math.round(busy * 100)} % of a core, ${count(Math.round(steps))} steps a second${waits}`;
}

/** How full a disk is, as a gauge and in words. */
function disk({directory, free, used}) {
    const share = used / Math.max(used + free, 1);
    const meter = h("meter", {min: 0, max: 1, low: 0.8, high: 0.9, optimum: 0, value: share, "aria-label": "Used part of the disk"});
    return [meter, ` ${Math.floor(share * 100)} % used, ${bytes(free)} left `, h("span", {class: "hint"}, directory)];
}
