/* Sockets and framing: payloads go out as POST requests or WebSocket frames, and come back as payloads. */
#define _GNU_SOURCE
#include "meter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int poller, ticker;
static Buffer scratch;               /* what is being read: only unfinished rests are kept with a client */

void wire_start(void) {
    poller = epoll_create1(0);
    ticker = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
    if (poller < 0 || ticker < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, ticker, &event)) fail("epoll: %s", strerror(errno));
}

static void reserve(Buffer *b, size_t capacity) {
    if (b->capacity >= capacity) return;
    b->capacity = capacity * 2;
    b->bytes = realloc(b->bytes, b->capacity);
    if (!b->bytes) fail("out of memory");
}

static void append(Buffer *b, const void *bytes, size_t n) {
    reserve(b, b->length + n);
    memcpy(b->bytes + b->length, bytes, n);
    b->length += n;
}

/* ---- out ---- */

static void await_write(Client *c, bool wanted) {
    if (c->awaits_write == wanted) return;
    struct epoll_event event = { .events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c };
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
    c->awaits_write = wanted;
}

static void flush(Client *c) {
    while (c->out_sent < c->out.length) {
        ssize_t n = send(c->fd, c->out.bytes + c->out_sent, c->out.length - c->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) { await_write(c, true); return; }
        if (n < 0) { client_lost(c); return; }
        c->out_sent += (size_t)n;
    }
    c->out.length = c->out_sent = 0;
    await_write(c, false);
}

void wire_open(Client *c) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) fail("socket: %s", strerror(errno));
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS)
        fail("connect to port %d: %s", opt.port, strerror(errno));
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
}

void wire_close(Client *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

void wire_upgrade(Client *c) {
    char request[512];
    int n = snprintf(request, sizeof request,
        "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nOrigin: http://127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n", opt.path, opt.port, opt.port);
    append(&c->out, request, (size_t)n);
    flush(c);
}

static void post(Client *c, const char *body, size_t n) {
    char head[512];
    int h = snprintf(head, sizeof head,
        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json;charset=UTF-8\r\n%s%s%sContent-Length: %zu\r\n\r\n",
        opt.path, opt.port, *c->cookie ? "Cookie: " : "", c->cookie, *c->cookie ? "\r\n" : "", n);
    append(&c->out, head, (size_t)h);
    append(&c->out, body, n);
}

enum { TEXT = 1, CLOSE = 8, PING = 9, PONG = 10 };

/* RFC 6455, 5.2: a client masks every frame. The key of zeros leaves the text as it is. */
static void frame(Client *c, int opcode, const char *body, size_t n) {
    uint8_t head[8] = { (uint8_t)(0x80 | opcode), (uint8_t)(0x80 | n) };
    size_t h = 2;
    if (n > 65535) fail("a frame of %zu bytes", n);
    if (n > 125) { head[1] = 0x80 | 126; head[2] = (uint8_t)(n >> 8); head[3] = (uint8_t)n; h = 4; }
    append(&c->out, head, h + 4);    /* the rest of head is zeros: the key */
    append(&c->out, body, n);
}

void wire_send(Client *c, const char *body, size_t n) {
    if (opt.websocket) frame(c, TEXT, body, n); else post(c, body, n);
    flush(c);
}

/* ---- in: each parser takes one response or frame off the front and returns its length, 0 when it is not whole yet ---- */

static bool header_is(const char *line, const char *name) { return !strncasecmp(line, name, strlen(name)); }

static void keep_cookie(Client *c, const char *line, const char *end) {
    const char *value = line + strlen("set-cookie:");
    while (value < end && *value == ' ') value++;
    const char *stop = memchr(value, ';', (size_t)(end - value));
    size_t n = (size_t)((stop ? stop : end) - value);
    if (*c->cookie || n >= sizeof c->cookie) return;
    memcpy(c->cookie, value, n);
    c->cookie[n] = 0;
}

/* Joins the chunks in place; the length of the joined body in *joined, 0 when the last chunk is missing. */
static size_t dechunk(char *bytes, size_t n, size_t *joined) {
    for (int pass = 0; pass < 2; pass++) {       /* the first only looks whether all are there */
        size_t at = 0;
        *joined = 0;
        for (;;) {
            char *eol = memmem(bytes + at, n - at, "\r\n", 2);
            if (!eol) return 0;
            size_t size = strtoul(bytes + at, NULL, 16);
            at = (size_t)(eol - bytes) + 2;
            if (at + size + 2 > n) return 0;
            if (pass == 1) memmove(bytes + *joined, bytes + at, size);
            *joined += size;
            at += size + 2;
            if (size == 0 && pass == 1) return at;
            if (size == 0) break;
        }
    }
    return 0;
}

static size_t take_response(Client *c, char *bytes, size_t n) {
    char *blank = memmem(bytes, n, "\r\n\r\n", 4);
    if (!blank || n < 12) return 0;
    size_t head = (size_t)(blank - bytes) + 4, length = 0, body;
    bool chunked = false;
    int status = atoi(bytes + 9);
    for (char *line = bytes; line < blank;) {
        char *eol = memmem(line, (size_t)(blank + 2 - line), "\r\n", 2);
        if (header_is(line, "content-length:")) length = strtoul(line + 15, NULL, 10);
        else if (header_is(line, "set-cookie:")) keep_cookie(c, line, eol);
        else if (header_is(line, "transfer-encoding:")) chunked = memmem(line, (size_t)(eol - line), "chunked", 7);
        line = eol + 2;
    }
    if (c->state == UPGRADING) {
        if (status != 101) fail("the server takes no WebSocket here: HTTP %d", status);
        client_opened(c);
        return head;
    }
    size_t whole = chunked ? dechunk(bytes + head, n - head, &body) : (body = length);
    if (chunked ? !whole : head + whole > n) return 0;
    if (status != 200) { totals.http_errors++; complain("HTTP status other than 200", bytes, n); }
    client_received(c, bytes + head, body);
    return head + whole;
}

static size_t take_frame(Client *c, char *bytes, size_t n) {
    const uint8_t *f = (const uint8_t *)bytes;
    if (n < 2) return 0;
    size_t length = f[1] & 127, head = 2;
    if (length == 126) { if (n < 4) return 0; length = (size_t)f[2] << 8 | f[3]; head = 4; }
    else if (length == 127) {
        if (n < 10) return 0;
        length = 0; head = 10;
        for (int i = 2; i < 10; i++) length = length << 8 | f[i];
    }
    if (n < head + length) return 0;
    int opcode = f[0] & 15;
    if (opcode == TEXT) client_received(c, bytes + head, length);
    else if (opcode == PING) { frame(c, PONG, bytes + head, length); flush(c); }
    else if (opcode == CLOSE) { complain("the server closed the WebSocket", bytes + head + 2, length > 2 ? length - 2 : 0); client_lost(c); }
    return head + length;
}

static void readable(Client *c) {
    for (bool more = true; more && c->fd >= 0;) {
        size_t have = c->in.length;
        reserve(&scratch, have + 65536);
        if (have) memcpy(scratch.bytes, c->in.bytes, have);
        c->in.length = 0;
        size_t room = scratch.capacity - have;
        ssize_t n = recv(c->fd, scratch.bytes + have, room, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) { complain("the server closed a connection", "", 0); client_lost(c); return; }
        if (n < 0) n = 0;
        more = (size_t)n == room;
        totals.bytes_in += (uint64_t)n;
        char *at = scratch.bytes;
        size_t left = have + (size_t)n, taken;
        while (left && c->fd >= 0) {
            taken = opt.websocket && c->state != UPGRADING ? take_frame(c, at, left) : take_response(c, at, left);
            if (!taken) break;
            at += taken; left -= taken;
        }
        if (left && c->fd >= 0) append(&c->in, at, left);
    }
}

/* ---- the loop ---- */

void wire_tick(double per_second) {
    uint64_t ns = per_second > 0 ? (uint64_t)(1e9 / per_second) : 0;
    struct timespec every = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };
    struct itimerspec timer = { .it_interval = every, .it_value = every };
    timerfd_settime(ticker, 0, &timer, NULL);
}

void wire_turn(int timeout_ms) {
    struct epoll_event events[256];
    int n = epoll_wait(poller, events, 256, timeout_ms);
    for (int i = 0; i < n; i++) {
        Client *c = events[i].data.ptr;
        if (!c) { uint64_t ticks; if (read(ticker, &ticks, sizeof ticks) < 0) continue; }
        if (!c || c->fd < 0) continue;
        if (events[i].events & EPOLLOUT) flush(c);
        if (c->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) readable(c);
    }
}
