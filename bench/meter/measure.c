/* What is counted and how: latency, loss and duplicates, CPU time and memory of the server. */
#define _GNU_SOURCE
#include "meter.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

Histogram delivery_times, publish_times;

uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- histogram: 128 buckets to every power of two, so no sample is off by more than 0.8 % ---- */

static int bucket_of(uint64_t us) {
    if (us < 128) return (int)us;
    int shift = 63 - __builtin_clzll(us) - 7;
    return shift < 28 ? (shift + 1) * 128 + (int)((us >> shift) - 128) : 30 * 128 - 1;
}

static uint64_t upper_edge(int bucket) {
    if (bucket < 128) return (uint64_t)bucket;
    int shift = bucket / 128 - 1;
    return ((uint64_t)(bucket % 128 + 129) << shift) - 1;
}

void histogram_clear(Histogram *h) { memset(h, 0, sizeof *h); }

void histogram_add(Histogram *h, uint64_t us) {
    h->count++;
    h->buckets[bucket_of(us)]++;
    if (us > h->max) h->max = us;
}

double histogram_ms(const Histogram *h, double quantile) {
    uint64_t rank = (uint64_t)(quantile * (double)h->count), below = 0;
    for (int i = 0; i < 30 * 128; i++) {
        below += h->buckets[i];
        if (below > rank) {
            uint64_t edge = upper_edge(i);
            return (double)(edge < h->max ? edge : h->max) / 1000.0;
        }
    }
    return (double)h->max / 1000.0;
}

/* ---- ledger: every message has a number, every subscriber one bit for it ---- */

static struct {
    uint64_t capacity, next, expected, window_first, window_end;
    int *members;                    /* subscribers in each room */
} ledger;

void ledger_size(uint64_t messages) {
    ledger.capacity = messages;
    ledger.members = calloc((size_t)opt.rooms, sizeof *ledger.members);
    ledger.window_first = UINT64_MAX;
}

void ledger_window(uint64_t first, uint64_t end) { ledger.window_first = first; ledger.window_end = end; }
void ledger_join(int room) { ledger.members[room]++; }
uint64_t ledger_expected(void) { return ledger.expected; }
uint64_t ledger_next(void) { return ledger.next; }

uint64_t ledger_publish(int room) {
    if (ledger.next >= ledger.capacity) fail("more messages than the ledger has room for");
    ledger.expected += (uint64_t)ledger.members[room];
    return ledger.next++;
}

void ledger_deliver(Client *c, uint64_t message, uint64_t due) {
    if (message >= ledger.next) { totals.strangers++; return; }
    if (!c->heard) c->heard = calloc(ledger.capacity / 8 + 1, 1);
    uint8_t bit = (uint8_t)(1u << (message & 7));
    if (c->heard[message >> 3] & bit) { totals.duplicates++; return; }
    c->heard[message >> 3] |= bit;
    totals.deliveries++;
    if (message >= ledger.window_first && message < ledger.window_end)
        histogram_add(&delivery_times, (clock_ns() - due) / 1000);
}

/* ---- the process tree: read from /proc anew for each figure, since a server may start helpers ---- */

static int parent_of(int pid) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    int parent = 0;
    char *name_end = strrchr(line, ')');          /* the name before it may hold anything */
    if (name_end) sscanf(name_end + 2, "%*c %d", &parent);
    return parent;
}

static bool descends(int pid, int root) {
    for (int depth = 0; pid > 1 && depth < 64; depth++) {
        if (pid == root) return true;
        pid = parent_of(pid);
    }
    return false;
}

double process_cpu_seconds(int pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t)) return 0;
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double process_resident_kib(int pid) {
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) if (sscanf(line, "Rss: %ld", &kib) == 1) break;
    fclose(f);
    return (double)kib;
}

static double sum_over_tree(int root, double (*figure)(int pid)) {
    DIR *proc = opendir("/proc");
    if (!proc || root <= 0) { if (proc) closedir(proc); return 0; }
    double sum = 0;
    for (struct dirent *e; (e = readdir(proc));) {
        int pid = isdigit((unsigned char)*e->d_name) ? atoi(e->d_name) : 0;
        if (pid > 0 && descends(pid, root)) sum += figure(pid);
    }
    closedir(proc);
    return sum;
}

double tree_cpu_seconds(int pid) { return sum_over_tree(pid, process_cpu_seconds); }
long tree_resident_kib(int pid) { return (long)sum_over_tree(pid, process_resident_kib); }

double own_cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
