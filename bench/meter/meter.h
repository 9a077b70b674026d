/*
 * The load meter: many Bayeux clients in one thread, over HTTP long-polling or WebSocket.
 *
 *   main.c     the options, the course of a run, the JSON result
 *   client.c   what a Bayeux client says, and what it makes of the answers
 *   wire.c     sockets, HTTP/1.1 and WebSocket framing: bytes to payloads and back
 *   measure.c  latency histogram, ledger of deliveries, CPU and memory of a process tree
 *
 * Times are nanoseconds of CLOCK_MONOTONIC unless a name says otherwise.
 */
#ifndef METER_H
#define METER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_S 1000000000ull

/* ---- the run ---- */

typedef enum { DELIVER, HOLD, STORM } Mode;

typedef struct {
    Mode mode;
    const char *path;
    int port, pid;
    bool websocket, ack, update;
    bool stores;                     /* of four steps the second and third publish messages that are stored */
    bool stored;                     /* all do */
    int clients, rooms, rooms_per_client, publishers;
    int payload;                     /* bytes of text in a message */
    int ramp;                        /* clients that may be on their way in at once */
    int prelude;                     /* storm: clients that come in before the measured ones */
    double rates[64];                /* messages a second, one step after the other */
    int nrates;
    double warmup, seconds, limit;   /* seconds */
    double stop_p99_ms;              /* no further step after two with a higher p99; 0: never stop */
} Options;

extern Options opt;

typedef struct {
    uint64_t opened, settled;        /* clients that came in; clients that reached their resting state */
    uint64_t published, confirmed;   /* publishes sent; their replies */
    uint64_t polls;                  /* replies to /meta/connect */
    uint64_t deliveries, duplicates, strangers;
    uint64_t bytes_in;
    uint64_t http_errors, bayeux_errors, closed_early;
} Totals;

extern Totals totals;

/* ---- a client ---- */

typedef enum { SUBSCRIBER, PUBLISHER } Role;
typedef enum { ABSENT, UPGRADING, HANDSHAKING, SUBSCRIBING, CONNECTING, HELD, RESTING, PUBLISHING, LOST } State;

typedef struct { char *bytes; size_t length, capacity; } Buffer;

typedef struct Client {
    Role role;
    State state;
    int index, fd;
    bool awaits_write;               /* epoll has been asked to tell when the socket takes more */
    long ack, next_id;               /* the last batch heard of, -1 before the first; the next message id */
    char id[128], cookie[160];
    Buffer in, out;                  /* an unfinished response; bytes the socket did not take yet */
    size_t out_sent;
    uint64_t asked_at;               /* when the last publish was due */
    uint8_t *heard;                  /* one bit a message: the ledger of this subscriber */
    struct Client *next_free;        /* publishers at rest form a list */
} Client;

void client_open(Client *c, Role role, int index);
void client_opened(Client *c);
void client_received(Client *c, const char *body, size_t n);
bool client_publish(uint64_t due, bool stored);   /* false when every publisher is busy */
void client_lost(Client *c);

/* ---- the wire ---- */

void wire_start(void);
void wire_open(Client *c);
void wire_upgrade(Client *c);
void wire_send(Client *c, const char *body, size_t n);
void wire_close(Client *c);
void wire_tick(double per_second);   /* wire_turn also returns this often; 0: no longer */
void wire_turn(int timeout_ms);      /* one round of whatever sockets have to say */

/* ---- the measure ---- */

typedef struct { uint64_t count, max; uint64_t buckets[30 * 128]; } Histogram;   /* microseconds */

void histogram_clear(Histogram *h);
void histogram_add(Histogram *h, uint64_t us);
double histogram_ms(const Histogram *h, double quantile);

extern Histogram delivery_times, publish_times;

void ledger_size(uint64_t messages);             /* before the first client opens */
void ledger_window(uint64_t first, uint64_t end);   /* deliveries of these messages give latency samples */
uint64_t ledger_publish(int room);               /* the number of a new message, for all members of the room */
void ledger_join(int room);
void ledger_deliver(Client *c, uint64_t message, uint64_t due);
uint64_t ledger_expected(void);
uint64_t ledger_next(void);

uint64_t clock_ns(void);
double process_cpu_seconds(int pid);             /* user and system time */
double tree_cpu_seconds(int pid);                /* the same of the process and its descendants */
long tree_resident_kib(int pid);
double own_cpu_seconds(void);

void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void complain(const char *what, const char *body, size_t n);   /* the first few troubles go to stderr */

#endif
