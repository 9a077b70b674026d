#!/usr/bin/env node
// Copies the template into a new directory: npm create crewel my-page
import {cpSync, existsSync, readdirSync, readFileSync, renameSync, writeFileSync} from "node:fs";
import {basename, dirname, join, resolve} from "node:path";
import {fileURLToPath} from "node:url";
import {parseArgs} from "node:util";

const USAGE = "usage: npm create crewel DIRECTORY [-- --client FILE_OR_VERSION]";
const TEMPLATE = join(dirname(fileURLToPath(import.meta.url)), "template");

function fail(text) {
    console.error(`create-crewel: ${text}\n${USAGE}`);
    process.exit(2);
}

function read() {
    try {
        return parseArgs({allowPositionals: true, options: {client: {type: "string"}}});
    } catch (error) {
        return fail(error.message);
    }
}

const {positionals, values} = read();
if (positionals.length !== 1) {
    fail("it takes one directory");
}
const target = resolve(positionals[0]);
const name = basename(target).toLowerCase().replace(/[^a-z0-9._-]+/g, "-").replace(/^[._-]+/, "");
if (!name) {
    fail(`${positionals[0]} is no name of a package`);
}
if (existsSync(target) && readdirSync(target).length) {
    fail(`${target} is not empty`);
}
if (values.client?.endsWith(".tgz") && !existsSync(values.client)) {
    fail(`there is no ${values.client}`);
}

cpSync(TEMPLATE, target, {recursive: true});
renameSync(join(target, "gitignore"), join(target, ".gitignore")); // npm leaves a .gitignore out of packages
const file = join(target, "package.json");
const description = JSON.parse(readFileSync(file, "utf8"));
description.name = name;
if (values.client) {
    description.dependencies["@crewel/client"] = values.client.endsWith(".tgz") ? `file:${resolve(values.client)}` : values.client;
}
writeFileSync(file, `${JSON.stringify(description, null, 2)}\n`);
console.log(`made ${target}; next:\n  cd ${positionals[0]}\n  npm install\n  npm run dev`);
