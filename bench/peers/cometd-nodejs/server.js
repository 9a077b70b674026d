'use strict';
// cometd-nodejs-server with the acknowledge extension, which a session asks for in its handshake.
const http = require('http');
const cometd = require('cometd-nodejs-server');
const { AcknowledgedMessagesExtension } = require('cometd-nodejs-server/ack-extension');

const bayeux = cometd.createCometDServer({ timeout: 30000, maxSessionsPerBrowser: -1 });
bayeux.addExtension(new AcknowledgedMessagesExtension());
const server = http.createServer(bayeux.handle);
server.keepAliveTimeout = 75000;        // Node's 5 s would close the connections of idle clients
server.listen({ port: 0, host: '127.0.0.1', backlog: 1024 }, () => {
  console.log(`ready http://127.0.0.1:${server.address().port}/cometd`);
});
