/* Queue pairs: their states, and what is posted to them. */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pair *pairs;

static struct device *device_of(struct pair *pair)
{
	return ((struct context *)pair->ibv.context)->device;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *domain, struct ibv_qp_init_attr *init)
{
	static uint32_t last = 0x10;
	struct device *device = ((struct context *)domain->context)->device;
	bool fits = init->cap.max_send_wr <= device->set.max_qp_wr && init->cap.max_recv_wr <= device->set.max_qp_wr &&
		    init->cap.max_send_sge <= 8 && init->cap.max_recv_sge <= 8;
	if (init->qp_type != IBV_QPT_RC || !fits || !init->send_cq || !init->recv_cq || init->srq) {
		errno = EINVAL;
		return NULL;
	}
	if (init->cap.max_send_wr > device->set.created_qp_wr || init->cap.max_recv_wr > device->set.created_recv_wr) {
		errno = ENOMEM;
		return NULL;
	}
	struct pair *pair = calloc(1, sizeof(*pair));
	pair->ibv = (struct ibv_qp){
		.context = domain->context, .qp_context = init->qp_context, .pd = domain, .send_cq = init->send_cq,
		.recv_cq = init->recv_cq, .qp_type = init->qp_type,
	};
	pair->capacity = init->cap;
	pair->signals_all = init->sq_sig_all;
	pair->sends.last = &pair->sends.first;
	pair->receives.last = &pair->receives.first;
	pthread_mutex_lock(&lock);
	pair->ibv.qp_num = ++last;
	((struct domain *)domain)->users++;
	((struct queue *)init->send_cq)->users++;
	((struct queue *)init->recv_cq)->users++;
	pair->next = pairs;
	pairs = pair;
	pthread_mutex_unlock(&lock);
	return &pair->ibv;
}

void take_first(struct requests *queue)
{
	struct request *first = queue->first;
	queue->first = first->next;
	if (!queue->first)
		queue->last = &queue->first;
	queue->count--;
	free(first);
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct pair *pair = (struct pair *)ibv;
	pthread_mutex_lock(&lock);
	struct pair **place = &pairs;
	while (*place && *place != pair)
		place = &(*place)->next;
	if (!*place)
		complain("a queue pair is destroyed twice");
	*place = pair->next;
	while (pair->sends.first)
		take_first(&pair->sends);
	while (pair->receives.first)
		take_first(&pair->receives);
	forget_completions(ibv->send_cq, ibv->qp_num);
	forget_completions(ibv->recv_cq, ibv->qp_num);
	((struct domain *)ibv->pd)->users--;
	((struct queue *)ibv->send_cq)->users--;
	((struct queue *)ibv->recv_cq)->users--;
	pthread_mutex_unlock(&lock);
	free(pair);
	return 0;
}

/* InfiniBand architecture, volume 1, table 91: the attributes that a transition needs, and that it allows. */
struct transition {
	enum ibv_qp_state from, to;
	int needs, allows;
};

static const struct transition transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		 IBV_QP_MIN_RNR_TIMER,
	 IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	 IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE |
		 IBV_QP_RATE_LIMIT},
	{IBV_QPS_INIT, IBV_QPS_RESET, 0, 0}, {IBV_QPS_RTR, IBV_QPS_RESET, 0, 0},
	{IBV_QPS_INIT, IBV_QPS_ERR, 0, 0}, {IBV_QPS_RTR, IBV_QPS_ERR, 0, 0}, {IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},
};

static const struct transition *transition(struct pair *pair, enum ibv_qp_state to)
{
	for (size_t index = 0; index < sizeof(transitions) / sizeof(transitions[0]); index++)
		if (transitions[index].from == pair->ibv.state && transitions[index].to == to)
			return &transitions[index];
	return NULL;
}

/* What the kernel and the adapter check; an errno value. */
static int check_attributes(struct pair *pair, const struct ibv_qp_attr *new, int mask)
{
	struct context *context = (struct context *)pair->ibv.context;
	struct settings *set = &context->device->set;
	int number = mask & IBV_QP_PORT ? new->port_num : pair->attributes.port_num;
	struct port *port = port_of(context, number);
	if (!port)
		return EINVAL;
	if (mask & IBV_QP_PKEY_INDEX && new->pkey_index >= port->pkey_count)
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU && (new->path_mtu < IBV_MTU_256 || new->path_mtu > set->active_mtu))
		return EINVAL;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && new->max_dest_rd_atomic > set->max_reads)
		return EINVAL;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && new->max_rd_atomic > set->max_reads)
		return EINVAL;
	if (mask & IBV_QP_TIMEOUT && new->timeout > 31)
		return EINVAL;
	if (!(mask & IBV_QP_AV))
		return 0;
	const struct ibv_ah_attr *address = &new->ah_attr;
	if (address->static_rate && set->no_static_rates)
		return EINVAL;
	/* Linux: rdma_check_ah_attr (drivers/infiniband/core/verbs.c). */
	if ((!port->is_infiniband || set->grh_required) && !address->is_global)
		return EINVAL;
	if (address->is_global && address->grh.sgid_index >= port->gid_count)
		return EINVAL;
	/* Linux: an entry without a GID is not used (rdma_get_gid_attr). */
	static const union ibv_gid none;
	if (address->is_global && !memcmp(&port->gids[address->grh.sgid_index], &none, sizeof(none)))
		return EINVAL;
	/* Linux: an entry of the table of RoCE has a type; those of version 1 send other packets. */
	if (!port->is_infiniband && !port->is_version_2[address->grh.sgid_index])
		return EINVAL;
	return address->port_num == number && address->sl <= 15 ? 0 : EINVAL;
}

static void set_attributes(struct pair *pair, const struct ibv_qp_attr *new, int mask)
{
	struct ibv_qp_attr *own = &pair->attributes;
#define SET(flag, field) \
	if (mask & (flag)) \
		own->field = new->field
	SET(IBV_QP_PKEY_INDEX, pkey_index);
	SET(IBV_QP_PORT, port_num);
	SET(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	SET(IBV_QP_AV, ah_attr);
	SET(IBV_QP_PATH_MTU, path_mtu);
	SET(IBV_QP_DEST_QPN, dest_qp_num);
	SET(IBV_QP_RQ_PSN, rq_psn);
	SET(IBV_QP_SQ_PSN, sq_psn);
	SET(IBV_QP_TIMEOUT, timeout);
	SET(IBV_QP_RETRY_CNT, retry_cnt);
	SET(IBV_QP_RNR_RETRY, rnr_retry);
	SET(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	SET(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
#undef SET
}

/* What was posted is gone, without completions (InfiniBand architecture, volume 1, 10.3.1). */
static void reset_pair(struct pair *pair)
{
	while (pair->sends.first)
		take_first(&pair->sends);
	while (pair->receives.first)
		take_first(&pair->receives);
	memset(&pair->attributes, 0, sizeof(pair->attributes));
}

/* The rate that the device uses, as mlx5 does for one that it lacks. */
static void set_static_rate(struct pair *pair)
{
	struct device *device = device_of(pair);
	uint8_t *rate = &pair->attributes.ah_attr.static_rate;
	if (!*rate)
		return;
	record(device, "static_rates", *rate);
	if (device->set.own_static_rate)
		*rate = device->set.own_static_rate;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attributes, int mask, struct ibv_qp_init_attr *init)
{
	struct pair *pair = (struct pair *)ibv;
	(void)mask;
	pthread_mutex_lock(&lock);
	*attributes = pair->attributes;
	*init = (struct ibv_qp_init_attr){.cap = pair->capacity, .qp_type = ibv->qp_type};
	attributes->qp_state = ibv->state;
	pthread_mutex_unlock(&lock);
	return 0;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *new, int mask)
{
	struct pair *pair = (struct pair *)ibv;
	int code = EINVAL;
	pthread_mutex_lock(&lock);
	enum ibv_qp_state to = mask & IBV_QP_STATE ? new->qp_state : ibv->state;
	const struct transition *known = transition(pair, to);
	int rest = mask & ~IBV_QP_STATE;
	if (known && (rest & known->needs) == known->needs && !(rest & ~(known->needs | known->allows)))
		code = check_attributes(pair, new, mask);
	struct device *device = device_of(pair);
	if (!code && to == IBV_QPS_RTR && device->requests >= device->set.rtr_after && device->set.rtr_errno) {
		code = device->set.rtr_errno;
		/* Other programs go on meanwhile. */
		pthread_mutex_unlock(&lock);
		usleep(device->set.rtr_ms * 1000);
		pthread_mutex_lock(&lock);
	}
	if (!code) {
		set_attributes(pair, new, mask);
		if (mask & IBV_QP_AV)
			set_static_rate(pair);
		if (to == IBV_QPS_RTR)
			record(device, "mtus", pair->attributes.path_mtu);
		if (to == IBV_QPS_RTS)
			record(device, "rates_in_use", pair->attributes.ah_attr.static_rate);
		if (to == IBV_QPS_ERR)
			fail_pair(pair);
		if (to == IBV_QPS_RESET)
			reset_pair(pair);
		ibv->state = to;
	}
	pthread_mutex_unlock(&lock);
	if (!code)
		wake_devices();
	return code;
}

int limit_rate(struct ibv_qp *ibv, struct ibv_qp_rate_limit_attr *limit)
{
	struct pair *pair = (struct pair *)ibv;
	struct device *device = device_of(pair);
	long most = device->set.limit_max;
	/* As bnxt_re of rdma-core: only the rate, and only when connected. */
	bool is_valid = !limit->comp_mask && !limit->max_burst_sz && !limit->typical_pkt_sz && limit->rate_limit &&
			limit->rate_limit <= most && (ibv->state == IBV_QPS_RTR || ibv->state == IBV_QPS_RTS);
	if (!most)
		return EOPNOTSUPP;
	pthread_mutex_lock(&lock);
	record(device, "limits", limit->rate_limit);
	int code = is_valid ? device->set.limit_errno : EINVAL;
	/* A table of rates may be full. The highest is there anyway. */
	if (!code && limit->rate_limit < most && device->set.limit_count-- <= 0)
		code = ENOMEM;
	if (!code && !device->set.limit_ignored)
		pair->limit = limit->rate_limit;
	pthread_mutex_unlock(&lock);
	return code;
}

/* The error that the device is to report instead of taking this request. */
static int refusal(struct device *device)
{
	struct settings *set = &device->set;
	if (device->is_dead)
		return EIO;
	if (set->refuse_after < 0 || device->requests < set->refuse_after || !set->refuse_count)
		return 0;
	set->refuse_count--;
	return set->refuse_errno;
}

static void keep(struct requests *queue, struct request *request)
{
	*queue->last = request;
	queue->last = &request->next;
	queue->count++;
}

static void flush(struct pair *pair, struct ibv_cq *queue, uint64_t id)
{
	struct ibv_wc entry = {.wr_id = id, .status = IBV_WC_WR_FLUSH_ERR, .qp_num = pair->ibv.qp_num};
	complete(queue, &entry);
}

/* All requests of a queue pair in the state ERR are flushed. */
void fail_pair(struct pair *pair)
{
	pair->ibv.state = IBV_QPS_ERR;
	for (; pair->sends.first; take_first(&pair->sends))
		flush(pair, pair->ibv.send_cq, pair->sends.first->send.wr_id);
	for (; pair->receives.first; take_first(&pair->receives))
		flush(pair, pair->ibv.recv_cq, pair->receives.first->receive.wr_id);
}

static int take_send(struct pair *pair, const struct ibv_send_wr *wr)
{
	int code = refusal(device_of(pair));
	if (code)
		return code;
	if (pair->ibv.state < IBV_QPS_RTS || wr->num_sge > (int)pair->capacity.max_send_sge)
		return EINVAL;
	if (pair->sends.count >= pair->capacity.max_send_wr)
		return ENOMEM;
	struct request *request = calloc(1, sizeof(*request));
	request->send = *wr;
	memcpy(request->segments, wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
	keep(&pair->sends, request);
	return 0;
}

int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct pair *pair = (struct pair *)ibv;
	int code = 0;
	pthread_mutex_lock(&lock);
	for (; wr && !code; wr = code ? wr : wr->next)
		code = take_send(pair, wr);
	if (code)
		*bad = wr;
	if (ibv->state == IBV_QPS_ERR)
		fail_pair(pair);
	pthread_mutex_unlock(&lock);
	wake_devices();
	return code;
}

int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct pair *pair = (struct pair *)ibv;
	int code = 0;
	pthread_mutex_lock(&lock);
	for (; wr; wr = wr->next) {
		if (ibv->state == IBV_QPS_RESET || wr->num_sge > (int)pair->capacity.max_recv_sge)
			code = EINVAL;
		else if (pair->receives.count >= pair->capacity.max_recv_wr)
			code = ENOMEM;
		if (code) {
			*bad = wr;
			break;
		}
		struct request *request = calloc(1, sizeof(*request));
		request->receive = *wr;
		memcpy(request->segments, wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
		keep(&pair->receives, request);
	}
	if (ibv->state == IBV_QPS_ERR)
		fail_pair(pair);
	pthread_mutex_unlock(&lock);
	wake_devices();
	return code;
}
