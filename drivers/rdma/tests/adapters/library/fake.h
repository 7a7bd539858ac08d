/*
 * A libibverbs without hardware. The devices are those of a directory that looks like the kernel's sysfs; the file
 * `fake` of a device has what sysfs does not show, and the faults. All devices are in one process, and bytes are
 * copied between its queue pairs.
 *
 * It checks what adapters, the kernel and the switches of a fabric check, and it ends the process where a real
 * library would wait for ever or use freed memory.
 */
#ifndef FAKE_H
#define FAKE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The functions are defined under these names; the header replaces calls of them. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_get_device_list

#define MAX_DEVICES 8
#define MAX_PORTS 2
#define MAX_TABLE 32

struct port {
	bool is_infiniband;
	bool is_down;
	uint16_t lid;
	int gid_count;
	union ibv_gid gids[MAX_TABLE];
	bool is_version_2[MAX_TABLE];
	int pkey_count;
	uint16_t pkeys[MAX_TABLE];
};

/* The file `fake`: a name and a number in each line. */
struct settings {
	/* The error with which the device cannot be opened; 0 if it can. */
	long open_errno;
	/* enum ibv_mtu: of the port, and of the longest packet that gets through; 0 if none does. */
	long active_mtu, path_mtu;
	/* The device's first packets of more than `lose_above` bytes are lost, this many of them. */
	long lose_first, lose_above;
	long grh_required;
	/* The LID of the router to other subnets, and the only service level with buffers in the switches; -1 for any. */
	long router_lid, service_level;
	long comp_vectors, max_cqe, max_qp_wr, max_reads;
	/* Requests and receive buffers that a queue pair has memory for. */
	long created_qp_wr, created_recv_wr;
	/* Microseconds for each request. */
	long delay_us;
	/* After so many requests of the device, the next `refuse_count` posts fail with this error. */
	long refuse_after, refuse_errno, refuse_count;
	/* After so many requests, an event; with a new LID for IBV_EVENT_LID_CHANGE, and a subnet with the prefix fec0::new_prefix. */
	long event_after, event, new_lid, new_prefix;
	/* With IBV_EVENT_GID_CHANGE the port has no GIDs for so long. */
	long absent_ms;
	/* After so many completions, the queue that gets the next one is overrun. */
	long overrun_after;
	/* The entries of a destroyed queue pair stay, as those of the kernel's device in software do. */
	long keeps_completions;
	/* The highest rate to which the device limits queue pairs, in kilobits per second; 0 without a limiter. */
	long limit_max;
	/* The error with which it refuses a limit, and whether it takes limits and sends faster nevertheless. */
	long limit_errno, limit_ignored;
	/* It takes so many limits below the highest. */
	long limit_count;
	/* The error of RTR, as where the kernel gets no answer of the neighbour; after so many requests of the device, and so many
	   milliseconds. */
	long rtr_errno, rtr_after, rtr_ms;
	/* It refuses static rates, or uses this one instead of each. */
	long no_static_rates, own_static_rate;
	/* The error with which it refuses memory with optional access flags; 0 if it takes it. */
	long optional_errno;
	/* It deregisters long memory when its directory has the file `let_go`. */
	long keeps_memory;
};

struct device {
	struct ibv_device ibv;
	char directory[512];
	int port_count;
	struct port ports[MAX_PORTS];
	struct settings set;
	long requests, completions, timeouts;
	bool is_dead;
};

struct context {
	struct ibv_context ibv;
	struct context *next;
	struct device *device;
	int event_pipe[2];
	int users;
};

struct domain {
	struct ibv_pd ibv;
	int users;
};

struct region {
	struct ibv_mr ibv;
	struct region *next;
	int access;
};

struct channel {
	struct ibv_comp_channel ibv;
	int write_end;
	int users;
};

struct queue {
	struct ibv_cq ibv;
	struct ibv_wc *entries;
	int capacity, first, count;
	bool is_armed, is_overrun;
	int unacknowledged;
	int users;
};

struct request {
	struct request *next;
	struct ibv_send_wr send;
	struct ibv_recv_wr receive;
	struct ibv_sge segments[8];
};

struct requests {
	struct request *first, **last;
	unsigned count;
};

struct pair {
	struct ibv_qp ibv;
	struct pair *next;
	struct ibv_qp_cap capacity;
	bool signals_all;
	struct ibv_qp_attr attributes;
	struct requests sends, receives;
	/* The first request is carried out at this time, in microseconds. */
	uint64_t ready_at;
	/* In kilobits per second; 0 for none. */
	uint32_t limit;
	int tries, not_ready_tries;
};

/* All objects, the oldest last. `lock` guards everything. */
extern pthread_mutex_t lock;
extern struct context *contexts;
extern struct pair *pairs;
extern struct region *regions;

void complain(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
struct port *port_of(struct context *context, int number);
/* An event of a device or its port, at every program that has it open; and one of an object. */
void raise_event(struct device *device, enum ibv_event_type kind);
void raise_event_of(struct ibv_context *owner, enum ibv_event_type kind, void *element);
void count_request(struct device *device);
/* Nothing acknowledged a request in time. */
void count_timeout(struct device *device, int port);

struct region *local_region(struct ibv_pd *domain, const struct ibv_sge *segment);
struct region *remote_region(struct ibv_pd *domain, uint32_t key, uint64_t address, uint64_t length);
void complete(struct ibv_cq *queue, const struct ibv_wc *entry);
void forget_completions(struct ibv_cq *queue, uint32_t number);

/* Adds a line to a file of the device's directory, for the test to read. */
void record(struct device *device, const char *file, long value);

int limit_rate(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *limit);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *entries);
int arm_cq(struct ibv_cq *cq, int solicited);

void take_first(struct requests *queue);
void fail_pair(struct pair *pair);

/* Lets the thread of the devices look at the requests again. */
void wake_devices(void);
uint64_t now_us(void);

#endif
