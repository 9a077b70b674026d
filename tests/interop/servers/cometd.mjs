/* Serves cometd-nodejs-server on a free port; prints its address. */
import http from "node:http";
import cometd from "cometd-nodejs-server";

const bayeux = cometd.createCometDServer({timeout: 20000});
const server = http.createServer(bayeux.handle);
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/cometd`));
