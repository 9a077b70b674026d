'use strict';
// socket.io as its documentation sets it up: rooms that clients join, and an event that is emitted to a room. Without
// permessage-deflate, which is its default.
const http = require('http');
const { Server } = require('socket.io');

const server = http.createServer();
const io = new Server(server, { serveClient: false, transports: ['websocket'] });
io.on('connection', (socket) => {
  socket.on('join', (room, done) => { socket.join(room); done(); });
  socket.on('say', (room, data) => io.to(room).emit('said', data));
});
server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => {
  console.log(`ready http://127.0.0.1:${server.address().port}/socket.io/`);
});
