/*
 * The floor of WebSockets: the least that a server in C can do for the same bytes on the wire as Crewel's.
 *
 *   floor [DIRECTORY]       prints `ready http://127.0.0.1:PORT/`; stored messages go into a file in the directory
 *
 * One thread, epoll, one write for each connection and turn. It speaks as much Bayeux as speakers.py does and looks for
 * words in the text instead of reading JSON. It validates nothing, expires nothing, forgets no session, and answers each
 * upgrade with the same key. A message that is to be stored is written and synced, once for all of a turn, before it is
 * delivered and answered. What a real server costs above it is the price of its features, and of its language.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { MOST_ROOMS = 64, EVENTS = 1024, PIECE = 65536 };

typedef struct { char *bytes; size_t length, capacity; } Buffer;

typedef struct Client {
    int fd;
    bool is_open, acknowledges, is_held, is_changed;
    unsigned batch;
    char connect_id[24];
    Buffer in, out, queue;           /* of bytes, of bytes, of messages for the next reply to a connect */
    struct Client *next;             /* in its room */
} Client;

typedef struct { char name[64]; Client *first; } Room;

typedef struct { Client *from; char name[64], id[24]; size_t start, length; } Stored;

static Room rooms[MOST_ROOMS];
static int room_count;
static Client **changed;             /* who has something to be written in this turn */
static size_t changed_count, changed_capacity;
static Stored *stored;               /* what is published in this turn and waits for the disk */
static size_t stored_count, stored_capacity;
static Buffer disk;                  /* what is to be written to it */
static int file = -1;
static unsigned long sessions;

static void *grown(void *items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return items;
    *capacity = *capacity ? *capacity * 2 : 64;
    items = realloc(items, *capacity * size);
    if (!items) abort();
    return items;
}

static void add(Buffer *to, const void *bytes, size_t length) {
    if (to->length + length > to->capacity) {
        to->capacity = (to->length + length) * 2;
        to->bytes = realloc(to->bytes, to->capacity);
        if (!to->bytes) abort();
    }
    memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
}

static void add_head(Buffer *to, size_t size) {
    unsigned char head[4] = {0x81, (unsigned char)size};
    if (size < 126) { add(to, head, 2); return; }
    head[1] = 126;
    head[2] = (unsigned char)(size >> 8);
    head[3] = (unsigned char)size;
    add(to, head, 4);
}

static void add_frame(Buffer *to, const char *text, size_t size) {
    add_head(to, size);
    add(to, text, size);
}

static void mark(Client *client) {
    if (client->is_changed) return;
    client->is_changed = true;
    changed = grown(changed, changed_count, &changed_capacity, sizeof *changed);
    changed[changed_count++] = client;
}

/* The text between `before` and the next quote or comma, copied; false if it is not there. */
static bool value_of(const char *text, size_t size, const char *before, char *to, size_t room) {
    size_t length = strlen(before), used = 0;
    const char *at = memmem(text, size, before, length), *end = text + size;
    if (!at) return false;
    for (at += length; at < end && *at != '"' && *at != ',' && *at != '}' && used + 1 < room; at++) to[used++] = *at;
    to[used] = 0;
    return true;
}

static Room *room_of(const char *name) {
    for (int i = 0; i < room_count; i++)
        if (!strcmp(rooms[i].name, name)) return &rooms[i];
    if (room_count == MOST_ROOMS) abort();
    snprintf(rooms[room_count].name, sizeof rooms[0].name, "%s", name);
    return &rooms[room_count++];
}

static void deliver(Room *room, const char *message, size_t length) {
    for (Client *each = room->first; each; each = each->next) {
        if (each->acknowledges) {
            add(&each->queue, message, length);
            add(&each->queue, ",", 1);
        } else {
            add_head(&each->out, length + 2);
            add(&each->out, "[", 1);
            add(&each->out, message, length);
            add(&each->out, "]", 1);
        }
        mark(each);
    }
}

static void confirm(Client *client, const char *channel, const char *id) {
    char text[256];
    int size = snprintf(text, sizeof text, "[{\"channel\":\"%s\",\"successful\":true,\"id\":\"%s\"}]", channel, id);
    add_frame(&client->out, text, (size_t)size);
    mark(client);
}

static void publish(Client *client, const char *text, size_t size) {
    static Buffer message;
    char channel[64] = "", id[24] = "";
    value_of(text, size, "\"channel\":\"", channel, sizeof channel);
    value_of(text, size, "\"id\":\"", id, sizeof id);
    const char *data = memmem(text, size, "\"data\":", 7), *end = memmem(text, size, ",\"clientId\"", 11);
    if (!data || !end) abort();
    message.length = 0;
    add(&message, "{\"channel\":\"", 12);
    add(&message, channel, strlen(channel));
    add(&message, "\",", 2);
    add(&message, data, (size_t)(end - data));
    add(&message, "}", 1);
    if (!memmem(text, size, "\"persistent\":true", 17)) {
        deliver(room_of(channel), message.bytes, message.length);
        confirm(client, channel, id);
        return;
    }
    stored = grown(stored, stored_count, &stored_capacity, sizeof *stored);
    Stored *one = &stored[stored_count++];
    one->from = client;
    one->start = disk.length;
    one->length = message.length;
    memcpy(one->name, channel, sizeof channel);
    memcpy(one->id, id, sizeof id);
    add(&disk, message.bytes, message.length);
    add(&disk, "\n", 1);
}

static void write_stored(void) {
    if (!stored_count) return;
    for (size_t at = 0; at < disk.length;) {
        ssize_t done = write(file, disk.bytes + at, disk.length - at);
        if (done < 0) { perror("floor: write"); exit(1); }
        at += (size_t)done;
    }
    if (fdatasync(file)) { perror("floor: fdatasync"); exit(1); }
    for (size_t i = 0; i < stored_count; i++) {
        deliver(room_of(stored[i].name), disk.bytes + stored[i].start, stored[i].length);
        if (stored[i].from) confirm(stored[i].from, stored[i].name, stored[i].id);
    }
    stored_count = disk.length = 0;
}

static void take(Client *client, const char *text, size_t size) {
    char answer[1024], id[24] = "", name[64];
    int length;
    if (memmem(text, size, "/meta/handshake", 15)) {
        client->acknowledges = memmem(text, size, "\"ack\":true", 10) != NULL;
        length = snprintf(answer, sizeof answer,
            "[{\"channel\":\"/meta/handshake\",\"successful\":true,\"id\":\"1\",\"version\":\"1.0\",\"minimumVersion\":\"1.0\","
            "\"clientId\":\"%032lx\",\"supportedConnectionTypes\":[\"websocket\",\"long-polling\"],"
            "\"advice\":{\"reconnect\":\"retry\",\"interval\":0,\"timeout\":30000}%s}]",
            ++sessions, client->acknowledges ? ",\"ext\":{\"ack\":true}" : "");
        add_frame(&client->out, answer, (size_t)length);
        mark(client);
    } else if (value_of(text, size, "\"subscription\":\"", name, sizeof name)) {
        Room *room = room_of(name);
        client->next = room->first;
        room->first = client;
        length = snprintf(answer, sizeof answer,
            "[{\"channel\":\"/meta/subscribe\",\"successful\":true,\"id\":\"2\",\"subscription\":\"%s\"},"
            "{\"channel\":\"/meta/connect\",\"successful\":true,\"id\":\"3\",\"ext\":{\"ack\":%u}}]", name, ++client->batch);
        add_frame(&client->out, answer, (size_t)length);
        mark(client);
    } else if (memmem(text, size, "/meta/connect", 13)) {
        value_of(text, size, "\"id\":\"", id, sizeof id);
        memcpy(client->connect_id, id, sizeof id);
        client->is_held = true;
        mark(client);
    } else {
        publish(client, text, size);
    }
}

static void release(Client *client) {
    char answer[160];
    int length = snprintf(answer, sizeof answer, "{\"channel\":\"/meta/connect\",\"successful\":true,\"id\":\"%s\",\"ext\":{\"ack\":%u}}]",
        client->connect_id, ++client->batch);
    add_head(&client->out, 1 + client->queue.length + (size_t)length);
    add(&client->out, "[", 1);
    add(&client->out, client->queue.bytes, client->queue.length);
    add(&client->out, answer, (size_t)length);
    client->queue.length = 0;
    client->is_held = false;
}

static void flush(void) {
    for (size_t i = 0; i < changed_count; i++) {
        Client *client = changed[i];
        client->is_changed = false;
        if (client->is_held && client->queue.length) release(client);
        for (size_t at = 0; at < client->out.length;) {
            ssize_t done = write(client->fd, client->out.bytes + at, client->out.length - at);
            if (done < 0 && errno != EAGAIN) break;   /* it is gone */
            at += done < 0 ? 0 : (size_t)done;
        }
        client->out.length = 0;
    }
    changed_count = 0;
}

/* Take the frames, which are whole and masked text, and keep what is not whole yet. */
static void read_frames(Client *client) {
    unsigned char *bytes = (unsigned char *)client->in.bytes;
    size_t at = 0, length = client->in.length;
    while (length - at >= 6) {
        size_t size = bytes[at + 1] & 127, head = 6;
        if (size == 126) { size = (size_t)bytes[at + 2] << 8 | bytes[at + 3]; head = 8; }
        if (length - at < head + size) break;
        unsigned char *payload = bytes + at + head, *mask = payload - 4;
        for (size_t i = 0; i < size; i++) payload[i] ^= mask[i & 3];
        if ((bytes[at] & 15) == 1) take(client, (char *)payload, size);
        at += head + size;
    }
    memmove(bytes, bytes + at, length - at);
    client->in.length = length - at;
}

static void upgrade(Client *client) {
    /* The key is the same for all: speakers.py */
    static const char answer[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                 "Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n\r\n";
    char *end = memmem(client->in.bytes, client->in.length, "\r\n\r\n", 4);
    if (!end) return;
    client->is_open = true;
    client->in.length = 0;
    add(&client->out, answer, sizeof answer - 1);
    mark(client);
}

static bool receive(Client *client) {
    static char piece[PIECE];
    ssize_t done = read(client->fd, piece, sizeof piece);
    if (done <= 0) return done < 0 && errno == EAGAIN;
    add(&client->in, piece, (size_t)done);
    if (client->is_open) read_frames(client);
    else upgrade(client);
    if (!client->in.length) {
        free(client->in.bytes);                       /* most clients are idle */
        memset(&client->in, 0, sizeof client->in);
    }
    return true;
}

static void leave(Client *client) {
    for (int i = 0; i < room_count; i++)
        for (Client **at = &rooms[i].first; *at; at = &(*at)->next)
            if (*at == client) { *at = client->next; break; }
    for (size_t i = 0; i < stored_count; i++)
        if (stored[i].from == client) stored[i].from = NULL;
    for (size_t i = 0; i < changed_count; i++)
        if (changed[i] == client) changed[i] = changed[--changed_count];
    close(client->fd);
    free(client->in.bytes);
    free(client->out.bytes);
    free(client->queue.bytes);
    free(client);
}

static void welcome(int poll, int listening) {
    int fd, one = 1;
    while ((fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Client *client = calloc(1, sizeof *client);
        if (!client) abort();
        client->fd = fd;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
    }
}

int main(int count, char **words) {
    const char *directory = count > 1 ? words[1] : getenv("CREWEL_STORAGE__DATA_DIR");
    file = open(directory ? directory : ".", O_TMPFILE | O_WRONLY | O_APPEND, 0600);
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), poll = epoll_create1(EPOLL_CLOEXEC);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (file < 0 || bind(listening, (struct sockaddr *)&address, size) || listen(listening, 4096)
        || getsockname(listening, (struct sockaddr *)&address, &size)) {
        perror("floor");
        return 1;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    epoll_ctl(poll, EPOLL_CTL_ADD, listening, &event);
    printf("ready http://127.0.0.1:%d/\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int found = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < found; i++) {
            if (!events[i].data.ptr) welcome(poll, listening);
            else if (!receive(events[i].data.ptr)) leave(events[i].data.ptr);
        }
        write_stored();
        flush();
    }
}
