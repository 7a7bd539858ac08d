/* The thread that carries out requests: the devices, and the fabric between them. */
#include "fake.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_cond_t work;
static bool has_work;

uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000ull + now.tv_nsec / 1000;
}

static struct device *device_of(struct pair *pair)
{
	return ((struct context *)pair->ibv.context)->device;
}

static struct port *port_of_pair(struct pair *pair)
{
	return port_of((struct context *)pair->ibv.context, pair->attributes.port_num);
}

static uint64_t bytes_of(enum ibv_mtu mtu)
{
	return mtu ? 128ull << mtu : 0;
}

static bool has_gid(const struct port *port, const union ibv_gid *gid)
{
	for (int index = 0; index < port->gid_count; index++)
		if (!memcmp(port->gids[index].raw, gid->raw, sizeof(gid->raw)))
			return true;
	return false;
}

/* Whether the switches and routers bring packets with this address from one port to the other. */
static bool leads_to(const struct port *from, const struct ibv_ah_attr *address, long router_lid, const struct port *to)
{
	if (from->is_infiniband != to->is_infiniband)
		return false;
	if (!from->is_infiniband)
		return has_gid(to, &address->grh.dgid);
	/* The first half of a GID is the prefix of the subnet. */
	if (!memcmp(from->gids[0].raw, to->gids[0].raw, 8))
		return address->dlid == to->lid && (!address->is_global || has_gid(to, &address->grh.dgid));
	return address->is_global && address->grh.hop_limit > 1 && address->dlid == router_lid &&
	       has_gid(to, &address->grh.dgid);
}

/* InfiniBand architecture, volume 1, 10.9.3: the same partition, and at least one end is a full member of it. */
static bool share_partition(struct pair *from, struct pair *to)
{
	uint16_t ours = port_of_pair(from)->pkeys[from->attributes.pkey_index];
	uint16_t theirs = port_of_pair(to)->pkeys[to->attributes.pkey_index];
	return (ours & 0x7fff) != 0 && (ours & 0x7fff) == (theirs & 0x7fff) && ((ours | theirs) & 0x8000);
}

/* The queue pair that packets of this length get to; NULL if they are lost on the way. */
static struct pair *destination(struct pair *from, uint64_t length)
{
	struct settings *set = &device_of(from)->set;
	uint64_t packet = bytes_of(from->attributes.path_mtu);
	if (length < packet)
		packet = length;
	for (struct pair *to = pairs; to; to = to->next) {
		bool is_it = to->ibv.qp_num == from->attributes.dest_qp_num && to->ibv.state != IBV_QPS_RESET &&
			     leads_to(port_of_pair(from), &from->attributes.ah_attr, set->router_lid,
				      port_of_pair(to));
		if (!is_it)
			continue;
		struct settings *their_set = &device_of(to)->set;
		long least = set->path_mtu < their_set->path_mtu ? set->path_mtu : their_set->path_mtu;
		bool has_buffers = set->service_level < 0 || set->service_level == from->attributes.ah_attr.sl;
		bool arrives = has_buffers && packet <= bytes_of(least) && least && share_partition(from, to) &&
			       !port_of_pair(from)->is_down && !port_of_pair(to)->is_down && !device_of(to)->is_dead;
		if (set->lose_first && packet > (uint64_t)set->lose_above) {
			set->lose_first--;
			return NULL;
		}
		/* A packet with another sequence number than the next one is not acknowledged. */
		bool is_accepted = (to->ibv.state == IBV_QPS_RTR || to->ibv.state == IBV_QPS_RTS) &&
				   to->attributes.dest_qp_num == from->ibv.qp_num &&
				   to->attributes.rq_psn == from->attributes.sq_psn;
		return arrives && is_accepted ? to : NULL;
	}
	return NULL;
}

static uint64_t length_of(const struct ibv_sge *segments, int count)
{
	uint64_t length = 0;
	for (int index = 0; index < count; index++)
		length += segments[index].length;
	return length;
}

static bool may_use(struct pair *pair, const struct ibv_sge *segments, int count, int access)
{
	for (int index = 0; index < count; index++) {
		struct region *region = local_region(pair->ibv.pd, &segments[index]);
		if (!region || (region->access & access) != access)
			return false;
	}
	return true;
}

/* Copies between segments and contiguous memory; true to gather, false to scatter. */
static void copy(const struct ibv_sge *segments, char *memory, uint64_t length, bool gathers)
{
	for (; length; segments++) {
		uint64_t part = segments->length < length ? segments->length : length;
		char *own = (char *)(uintptr_t)segments->addr;
		memcpy(gathers ? memory : own, gathers ? own : memory, part);
		memory += part;
		length -= part;
	}
}

/* A WRITE or READ of the peer's memory. */
static enum ibv_wc_status access_memory(struct request *request, uint64_t length, struct pair *to)
{
	bool reads = request->send.opcode == IBV_WR_RDMA_READ;
	int right = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
	uint64_t address = request->send.wr.rdma.remote_addr;
	if (!(to->attributes.qp_access_flags & right))
		return IBV_WC_REM_ACCESS_ERR;
	if (!length)
		return IBV_WC_SUCCESS;
	struct region *region = remote_region(to->ibv.pd, request->send.wr.rdma.rkey, address, length);
	if (!region || !(region->access & right))
		return IBV_WC_REM_ACCESS_ERR;
	copy(request->segments, (char *)(uintptr_t)address, length, !reads);
	return IBV_WC_SUCCESS;
}

/* A request that uses up a receive buffer of the peer. */
static enum ibv_wc_status deliver(struct pair *from, struct request *request, uint64_t length, struct pair *to)
{
	struct request *receive = to->receives.first;
	bool writes = request->send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ibv_wc entry = {
		.wr_id = receive->receive.wr_id, .opcode = writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = length, .qp_num = to->ibv.qp_num, .src_qp = from->ibv.qp_num,
	};
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	if (writes) {
		status = access_memory(request, length, to);
		entry.wc_flags = IBV_WC_WITH_IMM;
		entry.imm_data = request->send.imm_data;
	} else if (length > length_of(receive->segments, receive->receive.num_sge)) {
		entry.status = IBV_WC_LOC_LEN_ERR;
		status = IBV_WC_REM_INV_REQ_ERR;
	} else if (!may_use(to, receive->segments, receive->receive.num_sge, IBV_ACCESS_LOCAL_WRITE)) {
		entry.status = IBV_WC_LOC_PROT_ERR;
		status = IBV_WC_REM_INV_REQ_ERR;
	} else if (length) {
		char *bytes = malloc(length);
		copy(request->segments, bytes, length, true);
		copy(receive->segments, bytes, length, false);
		free(bytes);
	}
	if (status != IBV_WC_REM_ACCESS_ERR) {
		take_first(&to->receives);
		complete(to->ibv.recv_cq, &entry);
	}
	return status;
}

/* The first request is reported as done or failed. */
static void finish(struct pair *pair, enum ibv_wc_status status, uint64_t length)
{
	struct request *request = pair->sends.first;
	bool reads = request->send.opcode == IBV_WR_RDMA_READ;
	bool sends = request->send.opcode == IBV_WR_SEND;
	struct ibv_wc entry = {
		.wr_id = request->send.wr_id, .status = status, .byte_len = length, .qp_num = pair->ibv.qp_num,
		.opcode = reads ? IBV_WC_RDMA_READ : sends ? IBV_WC_SEND : IBV_WC_RDMA_WRITE,
	};
	bool is_signalled = pair->signals_all || request->send.send_flags & IBV_SEND_SIGNALED;
	take_first(&pair->sends);
	pair->tries = pair->not_ready_tries = 0;
	if (is_signalled || status != IBV_WC_SUCCESS)
		complete(pair->ibv.send_cq, &entry);
	if (status != IBV_WC_SUCCESS)
		fail_pair(pair);
	count_request(device_of(pair));
}

/* Nothing acknowledges the request: it is sent again after the timeout, until there were enough tries. */
static void try_later(struct pair *pair, uint64_t length)
{
	if (pair->tries++ > pair->attributes.retry_cnt)
		return finish(pair, IBV_WC_RETRY_EXC_ERR, length);
	count_timeout(device_of(pair), pair->attributes.port_num);
	/* InfiniBand architecture, volume 1, 9.7.6.1.3: 4.096 us times two to the power of the timeout. */
	pair->ready_at = now_us() + (4096ull << pair->attributes.timeout) / 1000;
}

/* Carries out the first request of a queue pair, or finds that it must wait. */
static void carry_out(struct pair *pair)
{
	/* 0.64 ms for the usual timer. */
	const uint64_t not_ready_us = 640;
	struct request *request = pair->sends.first;
	enum ibv_wr_opcode opcode = request->send.opcode;
	uint64_t length = length_of(request->segments, request->send.num_sge);
	bool reads = opcode == IBV_WR_RDMA_READ;
	bool needs_buffer = opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	if (!reads && !needs_buffer && opcode != IBV_WR_RDMA_WRITE)
		return finish(pair, IBV_WC_LOC_QP_OP_ERR, length);
	/* No READ may be outstanding. */
	if (reads && !pair->attributes.max_rd_atomic)
		return finish(pair, IBV_WC_LOC_QP_OP_ERR, length);
	if (!may_use(pair, request->segments, request->send.num_sge, reads ? IBV_ACCESS_LOCAL_WRITE : 0))
		return finish(pair, IBV_WC_LOC_PROT_ERR, length);
	struct pair *to = destination(pair, length);
	if (!to)
		return try_later(pair, length);
	pair->tries = 0;
	/* A packet that is longer than the receiving end's MTU. */
	if (to->attributes.path_mtu < pair->attributes.path_mtu && length > bytes_of(to->attributes.path_mtu)) {
		finish(pair, IBV_WC_REM_INV_REQ_ERR, length);
		return fail_pair(to);
	}
	if (needs_buffer && !to->receives.first) {
		/* 7 means no limit. */
		if (pair->attributes.rnr_retry < 7 && pair->not_ready_tries++ >= pair->attributes.rnr_retry)
			return finish(pair, IBV_WC_RNR_RETRY_EXC_ERR, length);
		pair->ready_at = now_us() + not_ready_us;
		return;
	}
	enum ibv_wc_status status =
		needs_buffer ? deliver(pair, request, length, to) : access_memory(request, length, to);
	finish(pair, status, length);
	if (status == IBV_WC_SUCCESS)
		return;
	/* The responding queue pair ends as well. */
	raise_event_of(to->ibv.context, IBV_EVENT_QP_ACCESS_ERR, to);
	fail_pair(to);
}

/* One request of each queue pair that is due; returns the time of the next one. */
static uint64_t carry_out_due(uint64_t now)
{
	uint64_t next = UINT64_MAX;
	for (struct pair *pair = pairs; pair; pair = pair->next) {
		long delay = device_of(pair)->set.delay_us;
		if (pair->ibv.state != IBV_QPS_RTS || !pair->sends.first || device_of(pair)->is_dead)
			continue;
		if (pair->ready_at <= now) {
			uint64_t length = length_of(pair->sends.first->segments, pair->sends.first->send.num_sge);
			/* Kilobits per second are bits per millisecond. */
			uint64_t spacing = pair->limit ? length * 8000 / pair->limit : 0;
			pair->ready_at = now + delay + spacing;
			carry_out(pair);
		}
		if (pair->sends.first && pair->ready_at < next)
			next = pair->ready_at;
	}
	return next;
}

static void *run_devices(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		uint64_t next = carry_out_due(now_us());
		if (has_work || next <= now_us()) {
			has_work = false;
			/* Programs get their turn between two requests. */
			pthread_mutex_unlock(&lock);
			sched_yield();
			pthread_mutex_lock(&lock);
			continue;
		}
		if (next == UINT64_MAX) {
			pthread_cond_wait(&work, &lock);
			continue;
		}
		struct timespec until = {.tv_sec = next / 1000000, .tv_nsec = next % 1000000 * 1000};
		pthread_cond_timedwait(&work, &lock, &until);
	}
	return NULL;
}

static void start_devices(void)
{
	pthread_condattr_t attributes;
	pthread_t thread;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&work, &attributes);
	if (pthread_create(&thread, NULL, run_devices, NULL))
		complain("no thread");
	pthread_detach(thread);
}

void wake_devices(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, start_devices);
	pthread_mutex_lock(&lock);
	has_work = true;
	pthread_cond_signal(&work);
	pthread_mutex_unlock(&lock);
}
