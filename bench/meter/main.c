/*
 * meter: the load of one benchmark case on one Bayeux server on this machine.
 *
 *   deliver  subscribers hold their connects, publishers publish at each rate of --rates in turn
 *   hold     subscribers hold their connects and nothing happens: what does one cost in memory?
 *   storm    clients come in as fast as the server lets them: what does a handshake and a subscription cost?
 *
 * Prints one JSON object. It talks to the loopback address only and ends by itself after --limit seconds.
 */
#define _GNU_SOURCE
#include "meter.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

Options opt = { .path = "/cometd", .clients = 100, .rooms = 10, .rooms_per_client = 1, .publishers = 16,
                .payload = 64, .ramp = 64, .warmup = 2, .seconds = 5, .limit = 120 };

static Client *clients;
static uint64_t opened_clients, give_up_at;

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("meter: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(2);
}

void complain(const char *what, const char *body, size_t n) {
    static int told;
    if (told++ < 5) fprintf(stderr, "meter: %s: %.*s\n", what, (int)(n < 300 ? n : 300), body);
}

/* ---- options ---- */

static void read_rates(char *list) {
    for (char *rate = strtok(list, ","); rate && opt.nrates < 64; rate = strtok(NULL, ",")) opt.rates[opt.nrates++] = atof(rate);
}

static void set_option(const char *name, char *value) {
    struct { const char *name; int *number; double *real; } numbers[] = {
        { "port", &opt.port, NULL }, { "pid", &opt.pid, NULL }, { "clients", &opt.clients, NULL }, { "rooms", &opt.rooms, NULL },
        { "rooms-per-client", &opt.rooms_per_client, NULL }, { "publishers", &opt.publishers, NULL }, { "payload", &opt.payload, NULL },
        { "ramp", &opt.ramp, NULL }, { "prelude", &opt.prelude, NULL }, { "warmup", NULL, &opt.warmup },
        { "seconds", NULL, &opt.seconds }, { "limit", NULL, &opt.limit }, { "stop-p99-ms", NULL, &opt.stop_p99_ms } };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(name, numbers[i].name)) {
            if (numbers[i].number) *numbers[i].number = atoi(value); else *numbers[i].real = atof(value);
            return;
        }
    if (!strcmp(name, "path")) opt.path = value;
    else if (!strcmp(name, "rates")) read_rates(value);
    else if (!strcmp(name, "mode")) opt.mode = !strcmp(value, "hold") ? HOLD : !strcmp(value, "storm") ? STORM : DELIVER;
}

static void read_options(int argc, char **argv) {
    static const char *names[] = { "mode", "path", "port", "pid", "clients", "rooms", "rooms-per-client", "publishers", "payload", "ramp",
                                   "prelude", "rates", "warmup", "seconds", "limit", "stop-p99-ms" };
    enum { COUNT = sizeof names / sizeof *names };
    struct option table[COUNT + 6] = { 0 };
    for (int i = 0; i < COUNT; i++) table[i] = (struct option){ names[i], required_argument, NULL, 0 };
    table[COUNT] = (struct option){ "websocket", no_argument, NULL, 'w' };
    table[COUNT + 1] = (struct option){ "ack", no_argument, NULL, 'a' };
    table[COUNT + 2] = (struct option){ "update", no_argument, NULL, 'u' };
    table[COUNT + 3] = (struct option){ "stores", no_argument, NULL, 's' };
    table[COUNT + 4] = (struct option){ "stored", no_argument, NULL, 'd' };
    for (int found, which; (found = getopt_long(argc, argv, "", table, &which)) != -1;) {
        if (found == '?') fail("see the options in main.c");
        else if (found == 'w') opt.websocket = true;
        else if (found == 'a') opt.ack = true;
        else if (found == 's') opt.stores = true;
        else if (found == 'd') opt.stored = true;
        else if (found == 'u') opt.update = opt.ack = true;
        else set_option(names[which], optarg);
    }
    if (!opt.port || !opt.pid) fail("--port and --pid of the server are wanted");
    if (opt.mode == DELIVER && (!opt.nrates || opt.payload < 26 || opt.payload > 4000)) fail("deliver wants --rates, and --payload from 26 to 4000");
    if (opt.mode != DELIVER) opt.publishers = 0;
    if (opt.mode != STORM) opt.prelude = 0;
}

/* ---- the course of a run ---- */

static bool late(void) { return clock_ns() > give_up_at; }

static uint64_t gone(void) { return totals.settled + totals.closed_early; }

/* Lets clients in until so many have settled (or were lost), never more than --ramp on their way at once. */
static void let_in(int count) {
    while (gone() < (uint64_t)count && !late()) {
        while (opened_clients < (uint64_t)count && opened_clients - gone() < (uint64_t)opt.ramp) {
            int i = (int)opened_clients++;
            bool subscribes = i < opt.clients;
            client_open(&clients[i], subscribes ? SUBSCRIBER : PUBLISHER, subscribes ? i : i - opt.clients);
        }
        wire_turn(10);
    }
}

static void run_for(double seconds) {
    for (uint64_t end = clock_ns() + (uint64_t)(seconds * 1e9); clock_ns() < end && !late();) wire_turn(1);
}

/* A clock of its own for the messages: one that could not be sent in time is still due, and its wait counts. */
static struct { double rate; uint64_t start, sent; bool stored; } schedule;

static uint64_t due(uint64_t k) { return schedule.start + (uint64_t)((double)k * 1e9 / schedule.rate); }

static void publish_for(double seconds) {
    for (uint64_t end = clock_ns() + (uint64_t)(seconds * 1e9), now; (now = clock_ns()) < end && !late();) {
        while (due(schedule.sent) <= now && client_publish(due(schedule.sent), schedule.stored)) schedule.sent++;
        wire_turn(1);
    }
}

static bool settled_all(void) { return totals.deliveries >= ledger_expected() && totals.confirmed >= totals.published; }

static double per(double amount, double count) { return count > 0 ? amount / count : 0; }

static void start_schedule(double rate) {
    schedule.rate = rate; schedule.start = clock_ns(); schedule.sent = 0;
    wire_tick(rate);
}

static void settle(double seconds) {
    wire_tick(0);
    for (uint64_t end = clock_ns() + (uint64_t)(seconds * 1e9); !settled_all() && clock_ns() < end && !late();) wire_turn(5);
}

/* At half the rate, since a server that is still cold would only pile up what the measurement then waits for. */
static void warm_up(double rate) {
    start_schedule(rate / 2);
    publish_for(opt.warmup);
    settle(10);
}

typedef enum { SUSTAINED, SLOW, DROWNED } Outcome;

/* One rate: reach a steady state, measure, wait for what is under way. */
static Outcome step(double rate, bool first) {
    Totals before_all = totals;
    uint64_t expected_before = ledger_expected();
    histogram_clear(&delivery_times);
    start_schedule(rate);
    publish_for(opt.seconds < 1 ? opt.seconds : 1);
    histogram_clear(&publish_times);
    ledger_window(ledger_next(), UINT64_MAX);
    Totals t0 = totals;
    double cpu0 = tree_cpu_seconds(opt.pid), alone0 = process_cpu_seconds(opt.pid), own0 = own_cpu_seconds();
    uint64_t start = clock_ns();
    publish_for(opt.seconds);
    double seconds = (double)(clock_ns() - start) / 1e9;
    double cpu = tree_cpu_seconds(opt.pid) - cpu0, alone = process_cpu_seconds(opt.pid) - alone0, own = own_cpu_seconds() - own0;
    Totals t1 = totals;
    uint64_t unsent = (uint64_t)((double)(clock_ns() - schedule.start) / 1e9 * rate);
    unsent = unsent > schedule.sent + 1 ? unsent - schedule.sent - 1 : 0;

    settle(5);
    ledger_window(UINT64_MAX, UINT64_MAX);

    double deliveries = (double)(t1.deliveries - t0.deliveries), published = (double)(t1.published - t0.published);
    uint64_t expected = ledger_expected() - expected_before, delivered = totals.deliveries - before_all.deliveries;
    uint64_t lost = expected > delivered ? expected - delivered : 0;
    double p99 = histogram_ms(&delivery_times, 0.99);
    printf("%s{\"rate\":%.0f,\"seconds\":%.3f,\"publish_per_s\":%.1f,\"deliver_per_s\":%.1f,\"polls_per_s\":%.1f,\"megabytes_per_s\":%.2f,"
           "\"stored\":%s,\"cpu_us_per_delivery\":%.3f,\"process_us_per_delivery\":%.3f,\"server_cores\":%.3f,\"meter_cores\":%.3f,"
           "\"latency_ms\":{\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"max\":%.3f},\"publish_ms\":{\"p50\":%.3f,\"p99\":%.3f},"
           "\"expected\":%llu,\"delivered\":%llu,\"lost\":%llu,\"duplicates\":%llu,\"unsent\":%llu,\"resident_kib\":%ld}",
           first ? "" : ",", rate, seconds, published / seconds, deliveries / seconds, (double)(t1.polls - t0.polls) / seconds,
           (double)(t1.bytes_in - t0.bytes_in) / seconds / 1e6,
           schedule.stored ? "true" : "false", per(cpu * 1e6, deliveries), per(alone * 1e6, deliveries), cpu / seconds, own / seconds,
           histogram_ms(&delivery_times, 0.5), histogram_ms(&delivery_times, 0.9), p99, (double)delivery_times.max / 1000.0,
           histogram_ms(&publish_times, 0.5), histogram_ms(&publish_times, 0.99),
           (unsigned long long)expected, (unsigned long long)delivered, (unsigned long long)lost,
           (unsigned long long)(totals.duplicates - before_all.duplicates), (unsigned long long)unsent, tree_resident_kib(opt.pid));
    if (late() || lost) return DROWNED;
    return opt.stop_p99_ms > 0 && p99 > opt.stop_p99_ms ? SLOW : SUSTAINED;
}

static void deliver(void) {
    let_in(opt.clients + opt.publishers);
    run_for(1);
    warm_up(opt.rates[0]);
    printf("\"steps\":[");
    for (int i = 0, slow = 0; i < opt.nrates && slow < 2; i++) {      /* one slow step may be a hiccup of the machine */
        schedule.stored = opt.stored || (opt.stores && (i + 1) / 2 % 2);        /* so that a drift of the machine meets both alike */
        Outcome outcome = step(opt.rates[i], i == 0);
        slow = outcome == SUSTAINED ? 0 : outcome == SLOW ? slow + 1 : 2;
    }
    printf("]");
}

static void hold(void) {
    long empty = tree_resident_kib(opt.pid);
    let_in(opt.clients);
    run_for(opt.warmup);
    double cpu = tree_cpu_seconds(opt.pid);
    run_for(opt.seconds);
    cpu = tree_cpu_seconds(opt.pid) - cpu;
    long held = tree_resident_kib(opt.pid);
    printf("\"held\":{\"connects\":%llu,\"empty_kib\":%ld,\"held_kib\":%ld,\"kib_per_connect\":%.3f,\"idle_cores\":%.4f}",
           (unsigned long long)totals.settled, empty, held, per((double)(held - empty), (double)totals.settled), cpu / opt.seconds);
}

static void storm(void) {
    let_in(opt.prelude);
    uint64_t before = totals.settled, start = clock_ns();
    double cpu = tree_cpu_seconds(opt.pid), own = own_cpu_seconds();
    let_in(opt.clients);
    double seconds = (double)(clock_ns() - start) / 1e9;
    cpu = tree_cpu_seconds(opt.pid) - cpu;
    double count = (double)(totals.settled - before);
    printf("\"storm\":{\"clients\":%.0f,\"seconds\":%.3f,\"clients_per_s\":%.1f,\"cpu_us_per_client\":%.3f,\"server_cores\":%.3f,\"meter_cores\":%.3f}",
           count, seconds, per(count, seconds), per(cpu * 1e6, count), cpu / seconds, (own_cpu_seconds() - own) / seconds);
}

static void raise_file_limit(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int wanted = opt.clients - opt.prelude + opt.publishers + opt.ramp + 32;      /* the prelude is gone again */
    if (files.rlim_cur < (rlim_t)wanted) fail("%d open files are wanted, only %lu are allowed", wanted, (unsigned long)files.rlim_cur);
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    raise_file_limit();
    srand(7);                        /* every run publishes to the same rooms in the same order */
    give_up_at = clock_ns() + (uint64_t)(opt.limit * 1e9);
    double messages = 1000 + opt.rates[0] * opt.warmup;
    for (int i = 0; i < opt.nrates; i++) messages += opt.rates[i] * (opt.seconds + 2);
    ledger_size((uint64_t)messages);
    clients = calloc((size_t)(opt.clients + opt.publishers), sizeof *clients);
    wire_start();
    uint64_t start = clock_ns();
    printf("{");
    if (opt.mode == HOLD) hold(); else if (opt.mode == STORM) storm(); else deliver();
    printf(",\"clients\":{\"wanted\":%d,\"settled\":%llu},\"total_seconds\":%.2f,\"timed_out\":%s,"
           "\"errors\":{\"http\":%llu,\"bayeux\":%llu,\"closed_early\":%llu,\"strangers\":%llu}}\n",
           opt.clients + opt.publishers, (unsigned long long)totals.settled, (double)(clock_ns() - start) / 1e9, late() ? "true" : "false",
           (unsigned long long)totals.http_errors, (unsigned long long)totals.bayeux_errors,
           (unsigned long long)totals.closed_early, (unsigned long long)totals.strangers);
    return 0;
}
