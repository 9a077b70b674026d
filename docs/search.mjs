// Asks the search of the built site as a page does, with the site's own worker: `node docs/search.mjs build/site "dead letter"`
// prints, for each query, the address of the page that it finds first, or an empty line.
import {readdirSync, readFileSync} from "node:fs";
import {join} from "node:path";
import {runInThisContext} from "node:vm";

const SETUP = 0, QUERY = 2; // the kinds of messages to the worker
const [site, ...queries] = process.argv.slice(2);
const workers = join(site, "assets", "javascripts", "workers");
const script = readdirSync(workers).find(name => /^search\.\w+\.min\.js$/.test(name));
let ask, answered;

Object.assign(globalThis, {
    self: globalThis,
    addEventListener: (type, listener) => { ask = listener; },
    postMessage: message => answered(message.data),
});
runInThisContext(readFileSync(join(workers, script), "utf8"));

function answer(type, data) {
    return new Promise(resolve => {
        answered = resolve;
        ask({data: {type, data}});
    });
}

await answer(SETUP, {...JSON.parse(readFileSync(join(site, "search", "search_index.json"))), options: {suggest: true}});
for (const query of queries) {
    const {items} = await answer(QUERY, query);
    console.log(items.length ? items[0][0].location.replace(/#.*/, "") : "");
}
