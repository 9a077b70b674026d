'use strict';
// Faye as its documentation sets it up: one endpoint on a plain HTTP server.
const http = require('http');
const faye = require('faye');

const server = http.createServer();
server.keepAliveTimeout = 75000;        // Node's 5 s would close the connections of idle clients
new faye.NodeAdapter({ mount: '/cometd', timeout: 30 }).attach(server);
server.listen({ port: 0, host: '127.0.0.1', backlog: 1024 }, () => {
  console.log(`ready http://127.0.0.1:${server.address().port}/cometd`);
});
