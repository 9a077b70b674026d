// The worker of the theme's search: it answers the messages that the theme's own worker answers, with MiniSearch in place of lunr.
// lunr knows words and their beginnings only. Here a name is found whole and by its parts, a word with a typo in it too, and what
// is called exactly as the query comes first. docs/site_search.py makes the documents: sections of pages, and names in tables.
importScripts("minisearch.js");

const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3; // the kinds of messages
const MAX_NAMES = 4, MAX_PAGES = 30, MAX_SECTIONS = 8;
const PHRASE = 3, ROW = 0.3; // how much more words count that stand as in the query, and how much less those of a row of a table
const AROUND = 110; // characters of an excerpt on each side of a word that was found
const WORD = /[\p{L}\p{N}_$@](?:[\p{L}\p{N}_.$@:/-]*[\p{L}\p{N}_$@])?/gu;
const PLAIN = /^[a-z ]+$/, VARIABLE = /^CREWEL_([A-Z]+)__([A-Z_]+)$/; // a query in words; a setting in the environment
const ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&#39;": "'"};

let docs, index, documents, pages, exactly;

function plain(html) {
    return html.replace(/<[^>]*>/g, " ").replace(/&(?:lt|gt|amp|quot|#39);/g, found => ENTITIES[found]).replace(/\s+/g, " ").trim();
}

function escaped(text) {
    return text.replace(/[&<>]/g, sign => ({"&": "&amp;", "<": "&lt;", ">": "&gt;"})[sign]);
}

/** The words of a text; a name such as `bayeux.max_message_bytes` is one, and so is each of its parts. */
function* wordsOf(text) {
    for (const [word] of text.matchAll(WORD)) {
        const parts = word.split(/[.:/-]/);
        yield* new Set([word, ...parts, ...parts.flatMap(part => part.split(/_|(?<=\p{Ll})(?=\p{Lu})/u))].filter(Boolean));
    }
}

/** A name as it is compared: `onOverflow` and `on_overflow` are one. */
function squashed(name) {
    return name.toLowerCase().replaceAll("_", "");
}

/** A word as it is compared: "acknowledging" and "acknowledge" are one, too. */
function stemmed(word) {
    const lower = squashed(word);
    return lower.length > 5 && /^\p{L}+$/u.test(lower) ? lower.replace(/(?:ing|ed|es|e|s)$/, "") : lower;
}

/** Words as a phrase is looked for in them: "long-polling" and "long polling" are one. */
function withBlanks(text) {
    return text.toLowerCase().replaceAll("-", " ");
}

/** What a query is compared with as a whole: blanks and back-ticks do not count, and a setting has its dotted name. */
function spelled(text) {
    return text.replace(/`/g, "").replace(/\s+/g, " ").trim()
        .replace(VARIABLE, (_, group, name) => `${group}.${name}`.toLowerCase());
}

/** Builds the index: at the first query, because most pages are read without one. */
function setUp() {
    documents = docs.map((doc, id) => ({
        ...doc, id, page: doc.location.split("#")[0], plainTitle: plain(doc.title), plainText: plain(doc.text),
        keywords: doc.location.includes("#") ? "" : (doc.tags ?? []).join(" "),
        words: withBlanks(plain(`${doc.title} ${doc.text}`)),
    }));
    pages = new Map();
    exactly = new Map();
    for (const doc of documents) {
        if (!pages.has(doc.page)) {
            pages.set(doc.page, doc);
            for (const word of [...doc.tags ?? [], doc.plainTitle]) {
                remember(squashed(word), doc);
            }
        }
        for (const name of doc.names ?? []) {
            remember(name, doc);
            // A plain word is a name only as it is written: "Session" is a class, and "session" is not.
            if (/[^a-z]/i.test(name) || /[a-z][A-Z]/.test(name)) {
                remember(squashed(name), doc);
            }
        }
    }
    index = new MiniSearch({
        fields: ["plainTitle", "plainText", "keywords"],
        tokenize: text => [...wordsOf(text)],
        processTerm: stemmed,
        searchOptions: {
            tokenize: text => text.match(WORD) ?? [],
            boost: {plainTitle: 8, keywords: 30},
            prefix: (term, at, terms) => term.length > 1 && at === terms.length - 1, // the last word may not be typed to its end
            fuzzy: term => term.length > 4 ? 0.2 : false,
            weights: {prefix: 0.5, fuzzy: 0.25},
        },
    });
    index.addAll(documents);
}

function remember(word, doc) {
    const known = exactly.get(word) ?? [];
    if (!known.includes(doc)) {
        exactly.set(word, [...known, doc]);
    }
}

/** The documents that are called exactly as the query: pages first, then names, the whole ones first. */
function called(query) {
    const found = [...new Set([...exactly.get(query) ?? [], ...exactly.get(squashed(query)) ?? []])];
    const isWhole = doc => doc.names[0] === query;
    const names = found.filter(doc => doc.names).sort((a, b) => isWhole(b) - isWhole(a));
    return [...found.filter(doc => !doc.names), ...names.slice(0, MAX_NAMES)];
}

/** The sections with all words of the query; those with some of them if there are none; and else those with words like them. */
function searched(query) {
    const phrase = withBlanks(query), isPlain = PLAIN.test(query), boosts = new Map();
    function boostDocument(id) {
        if (!boosts.has(id)) {
            const {boost = 1, names, words} = documents[id];
            const hasPhrase = phrase.includes(" ") && words.includes(phrase);
            boosts.set(id, boost * (hasPhrase ? PHRASE : 1) * (isPlain && names ? ROW : 1));
        }
        return boosts.get(id);
    }
    for (const options of [{combineWith: "AND"}, {combineWith: "OR"}, {combineWith: "OR", fuzzy: 0.35}]) {
        const found = index.search(query, {...options, boostDocument});
        if (found.length) {
            return found;
        }
    }
    return [];
}

function answer(query) {
    const groups = new Map();
    for (const doc of called(query)) {
        groups.set(doc.names ? doc.location : doc.page, [item(doc, [query], 1e6)]);
    }
    for (const {id, score, terms} of searched(query)) {
        const doc = documents[id];
        if (groups.has(doc.location) && doc.names) {
            continue;
        }
        const group = groups.get(doc.page) ?? [];
        if (group.length < MAX_SECTIONS && (group.length || groups.size < MAX_PAGES)
                && !group.some(each => each.location === doc.location)) {
            groups.set(doc.page, [...group, item(doc, terms, score)]);
        }
    }
    for (const [place, group] of groups) {
        if (pages.has(place) && !group.some(each => each.location === pages.get(place).location)) {
            group.push(item(pages.get(place), [], 0));
        }
    }
    return {items: [...groups.values()], suggest: suggested(query)};
}

/** A document as the theme shows it: its title, and an excerpt, with the words that were found. */
function item(doc, found, score) {
    const words = found.map(word => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    const sought = words.length ? new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.join("|")})[\\p{L}\\p{N}_]*`, "giu") : null;
    const at = sought ? Math.max(0, doc.plainText.search(sought)) : 0;
    const start = at <= AROUND ? 0 : doc.plainText.lastIndexOf(" ", at - AROUND / 2) + 1;
    const excerpt = doc.plainText.slice(start, start + 2 * AROUND);
    const more = start + 2 * AROUND < doc.plainText.length ? " …" : "";
    return {
        location: doc.location, score, terms: Object.fromEntries(found.map(word => [word, true])),
        title: doc.names ? `<code>${escaped(doc.names[0])}</code>` : marked(doc.plainTitle, sought),
        text: excerpt && `<p>${start ? "… " : ""}${marked(excerpt, sought)}${more}</p>`,
    };
}

function marked(text, sought) {
    return sought ? escaped(text).replace(sought, found => `<mark>${found}</mark>`) : escaped(text);
}

/** The name that begins like the query, which the theme offers to complete. */
function suggested(query) {
    const names = documents.flatMap(doc => doc.names ?? []).filter(name => name.startsWith(query) && !name.includes(" "));
    return names.sort((a, b) => a.length - b.length).slice(0, 1);
}

addEventListener("message", ({data: {type, data}}) => {
    if (type === SETUP) {
        docs = data.docs;
        postMessage({type: READY});
    } else if (type === QUERY) {
        if (!index) {
            setUp();
        }
        const query = spelled(data);
        postMessage({type: RESULT, data: query ? answer(query) : {items: []}});
    }
});
