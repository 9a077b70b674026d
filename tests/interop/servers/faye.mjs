/* Serves Faye on a free port; prints its address. */
import http from "node:http";
import faye from "faye";

const server = http.createServer();
new faye.NodeAdapter({mount: "/bayeux", timeout: 20}).attach(server);
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/bayeux`));
