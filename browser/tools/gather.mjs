/** Puts the scripts that the server serves at /extensions/, and the licence, beside package.json while it is packed. */
import {copyFileSync, readdirSync, rmSync} from "node:fs";
import {dirname, join} from "node:path";
import {fileURLToPath} from "node:url";

const here = dirname(dirname(fileURLToPath(import.meta.url)));
const top = dirname(here);
// The package has a cometd.js of its own: where the client is depends on who provides it.
const scripts = readdirSync(join(top, "extensions")).filter((name) => name.endsWith(".js") && name !== "cometd.js");
const files = [...scripts.map((name) => join("extensions", name)), "LICENSE"];

for (const file of files) {
    const copy = join(here, file.split(/[\\/]/).at(-1));
    if (process.argv.includes("--remove")) {
        rmSync(copy, {force: true});
    } else {
        copyFileSync(join(top, file), copy);
    }
}
