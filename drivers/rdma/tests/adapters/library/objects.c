/* Protection domains, registered memory, and completion queues. */
#define _GNU_SOURCE
#include "fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct region *regions;

static struct context *context_of(struct ibv_context *ibv)
{
	return (struct context *)ibv;
}

static void use(int *users, int change)
{
	pthread_mutex_lock(&lock);
	*users += change;
	pthread_mutex_unlock(&lock);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ibv)
{
	struct domain *domain = calloc(1, sizeof(*domain));
	domain->ibv.context = ibv;
	use(&context_of(ibv)->users, 1);
	return &domain->ibv;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct domain *domain = (struct domain *)ibv;
	if (domain->users)
		return EBUSY;
	use(&context_of(ibv->context)->users, -1);
	free(domain);
	return 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *ibv, void *address, size_t length, uint64_t iova, unsigned access)
{
	static uint32_t last;
	const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	/* ibv_reg_mr(3): remote writing needs local writing. An unknown optional flag is ignored. */
	bool is_valid = !(access & ~(known | IBV_ACCESS_OPTIONAL_RANGE)) && iova == (uintptr_t)address &&
			(!(access & IBV_ACCESS_REMOTE_WRITE) || access & IBV_ACCESS_LOCAL_WRITE);
	if (!is_valid) {
		errno = EINVAL;
		return NULL;
	}
	struct device *device = context_of(ibv->context)->device;
	if (access & IBV_ACCESS_OPTIONAL_RANGE && device->set.optional_errno) {
		record(device, "refused_access", access);
		errno = device->set.optional_errno;
		return NULL;
	}
	record(device, "access", access);
	struct region *region = calloc(1, sizeof(*region));
	region->ibv = (struct ibv_mr){.context = ibv->context, .pd = ibv, .addr = address, .length = length};
	region->access = access;
	pthread_mutex_lock(&lock);
	/* The two keys differ, so that one in place of the other is noticed. */
	last++;
	region->ibv.lkey = last << 8 | 1;
	region->ibv.rkey = last << 8 | 2;
	region->next = regions;
	regions = region;
	((struct domain *)ibv)->users++;
	pthread_mutex_unlock(&lock);
	return &region->ibv;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *ibv, void *address, size_t length, int access)
{
	/* rdma-core: the plain function does not accept optional flags. */
	if (access & IBV_ACCESS_OPTIONAL_RANGE) {
		errno = EINVAL;
		return NULL;
	}
	return ibv_reg_mr_iova2(ibv, address, length, (uintptr_t)address, access);
}

static void wait_until_let_go(const struct device *device)
{
	char path[700];
	snprintf(path, sizeof(path), "%s/let_go", device->directory);
	for (int waits = 0; access(path, F_OK); waits++) {
		if (waits == 60000)
			complain("%s is not written", path);
		usleep(1000);
	}
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	/* Devices need time for each page, so the threads that move data or close channels leave long memory to another one. */
	struct device *device = context_of(ibv->context)->device;
	bool is_long = ibv->length >= 64 << 20;
	char thread[16] = "";
	pthread_getname_np(pthread_self(), thread, sizeof(thread));
	if (is_long && strcmp(thread, "rdma-release"))
		complain("%zu bytes are deregistered by the thread %s", ibv->length, thread);
	if (is_long && device->set.keeps_memory)
		wait_until_let_go(device);
	pthread_mutex_lock(&lock);
	record(device, "deregistered", ibv->length);
	struct region **place = &regions;
	while (*place && &(*place)->ibv != ibv)
		place = &(*place)->next;
	if (!*place)
		complain("memory is deregistered twice");
	*place = (*place)->next;
	((struct domain *)ibv->pd)->users--;
	pthread_mutex_unlock(&lock);
	free(ibv);
	return 0;
}

static bool covers(const struct region *region, uint64_t address, uint64_t length)
{
	uint64_t start = (uintptr_t)region->ibv.addr;
	return address >= start && length <= region->ibv.length && address - start <= region->ibv.length - length;
}

struct region *local_region(struct ibv_pd *domain, const struct ibv_sge *segment)
{
	struct region *region = regions;
	while (region && (region->ibv.lkey != segment->lkey || region->ibv.pd != domain))
		region = region->next;
	return region && covers(region, segment->addr, segment->length) ? region : NULL;
}

struct region *remote_region(struct ibv_pd *domain, uint32_t key, uint64_t address, uint64_t length)
{
	struct region *region = regions;
	while (region && (region->ibv.rkey != key || region->ibv.pd != domain))
		region = region->next;
	return region && covers(region, address, length) ? region : NULL;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ibv)
{
	struct channel *channel = calloc(1, sizeof(*channel));
	int ends[2];
	if (pipe(ends)) {
		free(channel);
		return NULL;
	}
	channel->ibv.context = ibv;
	channel->ibv.fd = ends[0];
	channel->write_end = ends[1];
	use(&context_of(ibv)->users, 1);
	return &channel->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct channel *channel = (struct channel *)ibv;
	if (channel->users)
		return EBUSY;
	use(&context_of(ibv->context)->users, -1);
	close(ibv->fd);
	close(channel->write_end);
	free(channel);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ibv, int entries, void *owner, struct ibv_comp_channel *channel,
			     int vector)
{
	struct context *context = context_of(ibv);
	if (entries < 1 || entries > context->device->set.max_cqe || vector < 0 || vector >= ibv->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	record(context->device, "vectors", vector);
	struct queue *queue = calloc(1, sizeof(*queue));
	queue->entries = calloc(entries, sizeof(*queue->entries));
	queue->capacity = entries;
	queue->ibv.context = ibv;
	queue->ibv.channel = channel;
	queue->ibv.cq_context = owner;
	queue->ibv.cqe = entries;
	use(&context->users, 1);
	if (channel)
		use(&((struct channel *)channel)->users, 1);
	return &queue->ibv;
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct queue *queue = (struct queue *)ibv;
	pthread_mutex_lock(&lock);
	int users = queue->users;
	/* ibv_get_cq_event(3): all events must be acknowledged before. */
	if (!users && queue->unacknowledged)
		complain("destroying a completion queue waits for %d events", queue->unacknowledged);
	pthread_mutex_unlock(&lock);
	if (users)
		return EBUSY;
	use(&context_of(ibv->context)->users, -1);
	if (ibv->channel)
		use(&((struct channel *)ibv->channel)->users, -1);
	free(queue->entries);
	free(queue);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **queue, void **owner)
{
	if (read(channel->fd, queue, sizeof(*queue)) != sizeof(*queue))
		return -1;
	*owner = (*queue)->cq_context;
	use(&((struct queue *)*queue)->unacknowledged, 1);
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *queue, unsigned count)
{
	use(&((struct queue *)queue)->unacknowledged, -(int)count);
}

int arm_cq(struct ibv_cq *cq, int solicited)
{
	(void)solicited;
	pthread_mutex_lock(&lock);
	((struct queue *)cq)->is_armed = true;
	pthread_mutex_unlock(&lock);
	return 0;
}

int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *entries)
{
	struct queue *queue = (struct queue *)cq;
	int taken = 0;
	pthread_mutex_lock(&lock);
	for (; taken < count && queue->count; taken++) {
		entries[taken] = queue->entries[queue->first];
		queue->first = (queue->first + 1) % queue->capacity;
		queue->count--;
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

/* An entry for a queue. A queue without room is overrun: it reports no completion any more. */
void complete(struct ibv_cq *cq, const struct ibv_wc *entry)
{
	struct queue *queue = (struct queue *)cq;
	struct device *device = context_of(cq->context)->device;
	if (queue->is_overrun || device->is_dead)
		return;
	if (queue->count == queue->capacity || device->completions++ == device->set.overrun_after) {
		queue->is_overrun = true;
		raise_event_of(cq->context, IBV_EVENT_CQ_ERR, cq);
		return;
	}
	queue->entries[(queue->first + queue->count) % queue->capacity] = *entry;
	queue->count++;
	if (!queue->is_armed || !cq->channel)
		return;
	queue->is_armed = false;
	if (write(((struct channel *)cq->channel)->write_end, &cq, sizeof(cq)) != sizeof(cq))
		complain("events of a completion queue are not read");
}

/* The entries of a queue pair go with it (libmlx5: mlx5_cq_clean). */
void forget_completions(struct ibv_cq *cq, uint32_t number)
{
	struct queue *queue = (struct queue *)cq;
	int kept = 0;
	if (context_of(cq->context)->device->set.keeps_completions)
		return;
	for (int index = 0; index < queue->count; index++) {
		struct ibv_wc entry = queue->entries[(queue->first + index) % queue->capacity];
		if (entry.qp_num != number)
			queue->entries[(queue->first + kept++) % queue->capacity] = entry;
	}
	queue->count = kept;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const words[] = {
		[IBV_WC_SUCCESS] = "success", [IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error", [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error", [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
	};
	const char *word = (unsigned)status < sizeof(words) / sizeof(words[0]) ? words[status] : NULL;
	return word ?: "unknown";
}
