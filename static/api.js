// Renders the OpenAPI document of the administration. Everything is text: nothing of the document becomes markup.

const page = document.querySelector("#api");

function element(name, text = "", ...children) {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...children);
  return made;
}

// A text with `code` in it, as children of a new element.
function prose(name, text) {
  const parts = text.split("`").map((part, index) => index % 2 ? element("code", part) : part);
  return element(name, "", ...parts);
}

function row(name, schema, meaning) {
  const bounds = [
    schema.minimum !== undefined && `from ${schema.minimum}`,
    schema.maximum !== undefined && `to ${schema.maximum}`,
    schema.maxItems !== undefined && `at most ${schema.maxItems}`,
    schema.default !== undefined && `usually ${schema.default}`,
  ].filter(Boolean);
  const kind = [schema.type ?? "", ...bounds].join(", ");
  return element("tr", "", element("td", "", element("code", name)), element("td", kind), prose("td", meaning));
}

function table(caption, rows) {
  const body = element("tbody");
  body.append(...rows);
  return element("table", "", element("caption", caption), body);
}

function fields(operation) {
  const tables = [];
  for (const [place, caption] of [["path", "in the path"], ["query", "in the query"]]) {
    const parameters = (operation.parameters ?? []).filter(each => each.in === place);
    if (parameters.length) {
      tables.push(table(caption, parameters.map(each => row(each.name, each.schema, each.description))));
    }
  }
  const properties = operation.requestBody?.content["application/json"].schema.properties;
  if (properties) {
    const rows = Object.entries(properties).map(([name, schema]) => row(name, schema, schema.description));
    tables.push(table("in the body, a JSON object", rows));
  }
  return tables;
}

function answers(operation) {
  const rows = Object.entries(operation.responses).map(([status, answer]) =>
    element("tr", "", element("td", "", element("code", status)), prose("td", answer.description)));
  return table("answers", rows);
}

// The example of a request, and below an empty line some of its answer.
function example(method, path, operation) {
  const given = (operation.parameters ?? []).filter(each => "example" in each);
  const query = given.filter(each => each.in === "query").map(each => encodeURI(`${each.name}=${each.example}`));
  const url = given.reduce((all, each) => all.replace(`{${each.name}}`, each.example), path);
  const body = operation.requestBody?.content["application/json"].example;
  const [answer] = Object.values(operation.responses[200].content);
  const request = `${method.toUpperCase()} ${[url, ...query.length ? [query.join("&")] : []].join("?")}`;
  return element("pre", [request, ...body ? [JSON.stringify(body)] : [], "", JSON.stringify(answer.example)].join("\n"));
}

function section(method, path, operation) {
  const made = element("section");
  made.className = "card";
  made.id = operation.operationId;
  const heading = element("h2", "", element("code", `${method.toUpperCase()} ${path}`));
  made.append(heading, prose("p", operation.summary), ...fields(operation), answers(operation), example(method, path, operation));
  return made;
}

function show(api) {
  const sections = Object.entries(api.paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => section(method, path, operation)));
  page.append(prose("p", `Version ${api.info.version}. ${api.info.description}`), ...sections);
}

try {
  const response = await fetch("/admin/api/openapi.json");
  if (!response.ok) {
    throw new Error(`the server answered ${response.status}`);
  }
  show(await response.json());
} catch (error) {
  page.append(element("p", `The description cannot be shown: ${error.message}`));
}
page.removeAttribute("aria-busy");
