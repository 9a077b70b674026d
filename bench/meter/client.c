/*
 * One Bayeux client.
 *
 * A subscriber handshakes, subscribes to its rooms, connects once at once and then keeps a
 * connect outstanding for ever; in a storm it rests after the subscription. A publisher
 * handshakes and publishes when it is told to, one message at a time.
 *
 * Each message's text begins with a stamp, `@`, when it was due (16 hexadecimal digits), its
 * number (8), `@`: a delivery is found and dated in whatever JSON the server wraps around it.
 */
#define _GNU_SOURCE
#include "meter.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAMP 26                     /* bytes, both `@` included */

Totals totals;
static struct { Client *first, *last; } free_publishers;   /* each in its turn, so that no session falls silent and expires */

static const char *find(const char *text, size_t n, const char *part) { return memmem(text, n, part, strlen(part)); }

/* What stands after the first `"key":` of the text, NULL when there is none. */
static const char *value_of(const char *text, size_t n, const char *key) {
    const char *at = find(text, n, key), *end = text + n;
    if (!at) return NULL;
    for (at += strlen(key); at < end && (*at == ' ' || *at == ':'); at++) {}
    return at < end ? at : NULL;
}

static bool refused(const char *what, const char *body, size_t n) {
    const char *successful = value_of(body, n, "\"successful\"");
    if (successful && *successful == 't' && !find(body, n, "multiple-clients")) return false;
    totals.bayeux_errors++;
    complain(what, body, n);
    return true;
}

/* ---- what a client says ---- */

static const char *transport_name(void) { return opt.websocket ? "websocket" : "long-polling"; }

static void handshake(Client *c) {
    char body[512];
    int n = snprintf(body, sizeof body,
        "[{\"id\":\"%ld\",\"channel\":\"/meta/handshake\",\"version\":\"1.0\",\"minimumVersion\":\"1.0\","
        "\"supportedConnectionTypes\":[\"%s\"]%s}]",
        ++c->next_id, transport_name(),
        opt.update && c->role == SUBSCRIBER ? ",\"ext\":{\"ack\":true,\"session\":{\"update\":true}}" : opt.ack ? ",\"ext\":{\"ack\":true}" : "");
    c->state = HANDSHAKING;
    wire_send(c, body, (size_t)n);
}

static void subscribe(Client *c) {
    static char body[1 << 16];
    size_t n = (size_t)snprintf(body, sizeof body, "[{\"id\":\"%ld\",\"channel\":\"/meta/subscribe\",\"clientId\":\"%s\",\"subscription\":[",
                                ++c->next_id, c->id);
    for (int i = 0; i < opt.rooms_per_client; i++) {
        int room = (c->index * opt.rooms_per_client + i) % opt.rooms;
        ledger_join(room);
        n += (size_t)snprintf(body + n, sizeof body - n, "%s\"/bench/%d\"", i ? "," : "", room);
        if (n > sizeof body - 64) fail("too many rooms for one client");
    }
    n += (size_t)snprintf(body + n, sizeof body - n, "]}]");
    c->state = SUBSCRIBING;
    wire_send(c, body, n);
}

/* The first connect asks for an answer at once, as the stock JavaScript client does. */
static void keep_connected(Client *c, State next) {
    char body[512], ext[64] = "";
    if (opt.ack && c->ack >= 0) snprintf(ext, sizeof ext, ",\"ext\":{\"ack\":%ld}", c->ack);
    int n = snprintf(body, sizeof body,
        "[{\"id\":\"%ld\",\"channel\":\"/meta/connect\",\"clientId\":\"%s\",\"connectionType\":\"%s\"%s%s}]",
        ++c->next_id, c->id, transport_name(), next == CONNECTING ? ",\"advice\":{\"timeout\":0}" : "", ext);
    if (next == HELD && c->state != HELD) totals.settled++;
    c->state = next;
    wire_send(c, body, (size_t)n);
}

static void rest(Client *c) {
    if (c->state != PUBLISHING) totals.settled++;
    c->state = RESTING;
    if (c->role != PUBLISHER) { if (c->index < opt.prelude) wire_close(c); return; }
    c->next_free = NULL;
    if (free_publishers.last) free_publishers.last->next_free = c; else free_publishers.first = c;
    free_publishers.last = c;
}

static Client *free_publisher(void) {
    Client *c;
    do {
        c = free_publishers.first;
        if (c) free_publishers.first = c->next_free;
        if (!free_publishers.first) free_publishers.last = NULL;
    } while (c && c->state == LOST);
    return c;
}

bool client_publish(uint64_t due, bool stored) {
    static char body[8192], padding[4096];
    if (!*padding) memset(padding, 'x', sizeof padding - 1);
    Client *c = free_publisher();
    if (!c) return false;
    int room = rand() % opt.rooms;
    unsigned long message = (unsigned long)ledger_publish(room);
    int n = snprintf(body, sizeof body,
        "[{\"id\":\"%ld\",\"channel\":\"/bench/%d\",\"clientId\":\"%s\",%s\"data\":{\"user\":\"bench\",\"text\":\"@%016lx%08lx@%.*s\"}}]",
        ++c->next_id, room, c->id, stored ? "\"ext\":{\"publish\":{\"persistent\":true}}," : "", (unsigned long)due, message, opt.payload - STAMP, padding);
    c->state = PUBLISHING;
    c->asked_at = due;
    totals.published++;
    wire_send(c, body, (size_t)n);
    return true;
}

/* ---- what it makes of the answers ---- */

static uint64_t hexadecimal(const char *digits, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++) {
        int d = digits[i];
        value = value << 4 | (uint64_t)(d <= '9' ? d - '0' : (d | 32) - 'a' + 10);
    }
    return value;
}

static void count_deliveries(Client *c, const char *body, size_t n) {
    const char *end = body + n;
    for (const char *at = body; (at = memchr(at, '@', (size_t)(end - at))); ) {
        if (end - at < STAMP || at[STAMP - 1] != '@') { at++; continue; }
        ledger_deliver(c, hexadecimal(at + 17, 8), hexadecimal(at + 1, 16));
        at += STAMP;
    }
}

static void keep_id(Client *c, const char *body, size_t n) {
    const char *at = value_of(body, n, "\"clientId\"");
    size_t length = 0;
    for (at = at ? at + 1 : NULL; at && at + length < body + n && at[length] != '"' && length < sizeof c->id - 1; length++) {}
    if (at) memcpy(c->id, at, length);
    c->id[length] = 0;
}

static void connect_answered(Client *c, const char *body, size_t n) {
    totals.polls++;
    const char *ack = opt.ack ? value_of(body, n, "\"ack\"") : NULL;
    if (ack && isdigit((unsigned char)*ack)) c->ack = strtol(ack, NULL, 10);
    if (refused("connect", body, n)) { client_lost(c); return; }
    keep_connected(c, HELD);
}

static void publish_answered(Client *c, const char *body, size_t n) {
    totals.confirmed++;
    histogram_add(&publish_times, (clock_ns() - c->asked_at) / 1000);
    refused("publish", body, n);
    rest(c);
}

void client_received(Client *c, const char *body, size_t n) {
    switch (c->state) {
    case HANDSHAKING:
        if (refused("handshake", body, n)) { client_lost(c); return; }
        keep_id(c, body, n);
        if (c->role == SUBSCRIBER) subscribe(c); else rest(c);
        return;
    case SUBSCRIBING:
        if (refused("subscribe", body, n)) { client_lost(c); return; }
        if (opt.mode == STORM) rest(c); else keep_connected(c, CONNECTING);
        return;
    case CONNECTING:
    case HELD:
        count_deliveries(c, body, n);
        if (!opt.websocket || find(body, n, "\"/meta/connect\"")) connect_answered(c, body, n);
        return;
    case PUBLISHING:
        publish_answered(c, body, n);
        return;
    default:
        totals.strangers++;
        complain("an answer nobody waits for", body, n);
    }
}

void client_open(Client *c, Role role, int index) {
    *c = (Client){ .role = role, .index = index, .fd = -1, .ack = -1 };
    totals.opened++;
    wire_open(c);
    if (!opt.websocket) { handshake(c); return; }
    c->state = UPGRADING;
    wire_upgrade(c);
}

void client_opened(Client *c) { handshake(c); }

/* The server closed the connection, or refused what the client cannot go on without. */
void client_lost(Client *c) {
    if (c->state != LOST) totals.closed_early++;
    c->state = LOST;
    wire_close(c);
}
