/* Devices and their ports, and the events of open ones. */
#include "fake.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct context *contexts;

static struct device devices[MAX_DEVICES];
static int device_count = -1;

void complain(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fputs("the fake adapter: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	abort();
}

/* The content of a file without its last newline; false if there is none. */
static bool read_file(const char *directory, const char *name, char *text, size_t size)
{
	char path[1024];
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	FILE *file = fopen(path, "r");
	if (!file)
		return false;
	size_t length = fread(text, 1, size - 1, file);
	fclose(file);
	while (length && text[length - 1] == '\n')
		length--;
	text[length] = 0;
	return true;
}

static void read_table(const char *port, struct port *to)
{
	char name[64], text[128];
	for (int index = 0; index < MAX_TABLE; index++) {
		snprintf(name, sizeof(name), "gids/%d", index);
		if (!read_file(port, name, text, sizeof(text)))
			break;
		if (inet_pton(AF_INET6, text, to->gids[index].raw) != 1)
			complain("%s of %s is no GID", name, port);
		snprintf(name, sizeof(name), "gid_attrs/types/%d", index);
		to->is_version_2[index] = read_file(port, name, text, sizeof(text)) && !strcmp(text, "RoCE v2");
		to->gid_count = index + 1;
	}
	for (int index = 0; index < MAX_TABLE; index++) {
		snprintf(name, sizeof(name), "pkeys/%d", index);
		if (!read_file(port, name, text, sizeof(text)))
			break;
		to->pkeys[index] = strtoul(text, NULL, 0);
		to->pkey_count = index + 1;
	}
}

static void read_settings(struct device *device)
{
	struct settings *set = &device->set;
	const struct {
		const char *name;
		long *value;
	} known[] = {
		{"open_errno", &set->open_errno}, {"active_mtu", &set->active_mtu}, {"path_mtu", &set->path_mtu},
		{"lose_first", &set->lose_first}, {"lose_above", &set->lose_above},
		{"grh_required", &set->grh_required}, {"router_lid", &set->router_lid},
		{"service_level", &set->service_level},
		{"comp_vectors", &set->comp_vectors}, {"max_cqe", &set->max_cqe},
		{"created_qp_wr", &set->created_qp_wr}, {"created_recv_wr", &set->created_recv_wr},
		{"max_qp_wr", &set->max_qp_wr}, {"max_reads", &set->max_reads},
		{"delay_us", &set->delay_us}, {"refuse_after", &set->refuse_after},
		{"refuse_errno", &set->refuse_errno}, {"refuse_count", &set->refuse_count},
		{"event_after", &set->event_after}, {"event", &set->event},
		{"limit_max", &set->limit_max}, {"limit_errno", &set->limit_errno},
		{"limit_ignored", &set->limit_ignored}, {"limit_count", &set->limit_count},
		{"no_static_rates", &set->no_static_rates},
		{"own_static_rate", &set->own_static_rate},
		{"new_lid", &set->new_lid}, {"new_prefix", &set->new_prefix}, {"absent_ms", &set->absent_ms},
		{"overrun_after", &set->overrun_after}, {"rtr_errno", &set->rtr_errno},
		{"rtr_after", &set->rtr_after}, {"rtr_ms", &set->rtr_ms},
		{"keeps_completions", &set->keeps_completions}, {"optional_errno", &set->optional_errno},
		{"keeps_memory", &set->keeps_memory},
	};
	*set = (struct settings){
		.active_mtu = IBV_MTU_4096, .path_mtu = IBV_MTU_4096, .comp_vectors = 1, .max_cqe = 1 << 20, .created_qp_wr = 1 << 20, .created_recv_wr = 1 << 20,
		.max_qp_wr = 1 << 14, .max_reads = 16, .refuse_after = -1, .refuse_count = 1, .event_after = -1,
		.overrun_after = -1, .service_level = -1, .limit_count = LONG_MAX,
	};
	char text[2048], *rest = text;
	if (!read_file(device->directory, "fake", text, sizeof(text)))
		return;
	for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
		char name[32];
		long value;
		bool is_known = false;
		if (sscanf(line, "%31s %ld", name, &value) != 2)
			complain("%s/fake has the line: %s", device->directory, line);
		for (size_t index = 0; index < sizeof(known) / sizeof(known[0]); index++) {
			if (strcmp(known[index].name, name))
				continue;
			*known[index].value = value;
			is_known = true;
		}
		if (!is_known)
			complain("%s/fake has an unknown setting: %s", device->directory, name);
	}
}

static void read_device(struct device *device, const char *class, const char *name)
{
	char port[600], text[128];
	snprintf(device->directory, sizeof(device->directory), "%s/%s", class, name);
	snprintf(device->ibv.name, sizeof(device->ibv.name), "%s", name);
	device->ibv.transport_type = IBV_TRANSPORT_IB;
	device->ibv.node_type = IBV_NODE_CA;
	read_settings(device);
	for (int number = 1; number <= MAX_PORTS; number++) {
		snprintf(port, sizeof(port), "%s/ports/%d", device->directory, number);
		if (!read_file(port, "link_layer", text, sizeof(text)))
			break;
		struct port *to = &device->ports[number - 1];
		to->is_infiniband = !strcmp(text, "InfiniBand");
		if (read_file(port, "lid", text, sizeof(text)))
			to->lid = strtoul(text, NULL, 0);
		read_table(port, to);
		device->port_count = number;
	}
}

static void read_devices(void)
{
	char class[512];
	device_count = 0;
	snprintf(class, sizeof(class), "%s/class/infiniband", getenv("SYSFS_PATH") ?: "/sys");
	struct dirent **names;
	int count = scandir(class, &names, NULL, alphasort);
	for (int index = 0; index < count; index++) {
		if (names[index]->d_name[0] != '.' && device_count < MAX_DEVICES)
			read_device(&devices[device_count++], class, names[index]->d_name);
		free(names[index]);
	}
	if (count >= 0)
		free(names);
}

struct ibv_device **ibv_get_device_list(int *count)
{
	pthread_mutex_lock(&lock);
	if (device_count < 0)
		read_devices();
	struct ibv_device **list = calloc(device_count + 1, sizeof(*list));
	for (int index = 0; index < device_count; index++)
		list[index] = &devices[index].ibv;
	*count = device_count;
	pthread_mutex_unlock(&lock);
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

void record(struct device *device, const char *name, long value)
{
	char path[700];
	snprintf(path, sizeof(path), "%s/%s", device->directory, name);
	FILE *file = fopen(path, "a");
	if (!file)
		complain("%s cannot be written", path);
	fprintf(file, "%ld\n", value);
	fclose(file);
}

static int query_device_ex(struct ibv_context *ibv, const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *to, size_t size)
{
	struct device *device = ((struct context *)ibv)->device;
	struct ibv_device_attr_ex attributes = {
		.packet_pacing_caps = {
			.qp_rate_limit_min = 1, .qp_rate_limit_max = device->set.limit_max,
			.supported_qpts = device->set.limit_max ? 1 << IBV_QPT_RC : 1 << IBV_QPT_RAW_PACKET,
		},
	};
	if (input && input->comp_mask)
		return EINVAL;
	/* A program may have been built with an older structure. */
	memset(to, 0, size);
	memcpy(to, &attributes, size < sizeof(attributes) ? size : sizeof(attributes));
	return 0;
}

/* A context with the functions in front of it that verbs.h finds by their offsets. */
static struct context *new_context(void)
{
	size_t front = offsetof(struct verbs_context, context);
	struct verbs_context *verbs = calloc(1, front + sizeof(struct context));
	verbs->sz = sizeof(*verbs);
	verbs->query_device_ex = query_device_ex;
	verbs->modify_qp_rate_limit = limit_rate;
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	return (struct context *)&verbs->context;
}

struct ibv_context *ibv_open_device(struct ibv_device *ibv)
{
	struct device *device = (struct device *)ibv;
	if (device->set.open_errno) {
		errno = device->set.open_errno;
		return NULL;
	}
	struct context *context = new_context();
	if (pipe(context->event_pipe))
		complain("no pipe: %s", strerror(errno));
	context->device = device;
	context->ibv.device = ibv;
	context->ibv.ops.poll_cq = poll_cq;
	context->ibv.ops.req_notify_cq = arm_cq;
	context->ibv.ops.post_send = post_send;
	context->ibv.ops.post_recv = post_recv;
	context->ibv.async_fd = context->event_pipe[0];
	context->ibv.cmd_fd = -1;
	context->ibv.num_comp_vectors = device->set.comp_vectors;
	pthread_mutex_lock(&lock);
	record(device, "opened", 1);
	context->next = contexts;
	contexts = context;
	pthread_mutex_unlock(&lock);
	return &context->ibv;
}

int ibv_close_device(struct ibv_context *ibv)
{
	struct context *context = (struct context *)ibv;
	pthread_mutex_lock(&lock);
	if (context->users)
		complain("%s is closed and has %d objects", ibv->device->name, context->users);
	struct context **place = &contexts;
	while (*place != context)
		place = &(*place)->next;
	*place = context->next;
	pthread_mutex_unlock(&lock);
	close(context->event_pipe[0]);
	close(context->event_pipe[1]);
	free((char *)context - offsetof(struct verbs_context, context));
	return 0;
}

struct port *port_of(struct context *context, int number)
{
	struct device *device = context->device;
	return number >= 1 && number <= device->port_count ? &device->ports[number - 1] : NULL;
}

int ibv_query_device(struct ibv_context *ibv, struct ibv_device_attr *to)
{
	struct device *device = ((struct context *)ibv)->device;
	*to = (struct ibv_device_attr){
		.fw_ver = "fake", .max_mr_size = UINT64_MAX, .page_size_cap = 4096, .max_qp = 1 << 16,
		.max_qp_wr = device->set.max_qp_wr, .max_sge = 8, .max_cq = 1 << 16,
		.max_cqe = device->set.max_cqe, .max_mr = 1 << 16, .max_pd = 1 << 16,
		.max_qp_rd_atom = device->set.max_reads, .max_qp_init_rd_atom = device->set.max_reads,
		.max_pkeys = device->ports[0].pkey_count, .phys_port_cnt = device->port_count,
	};
	return 0;
}

/* The symbol fills the structure without its last field. */
int ibv_query_port(struct ibv_context *ibv, uint8_t number, struct _compat_ibv_port_attr *compatible)
{
	struct context *context = (struct context *)ibv;
	pthread_mutex_lock(&lock);
	struct port *port = port_of(context, number);
	if (!port) {
		pthread_mutex_unlock(&lock);
		return EINVAL;
	}
	struct settings *set = &context->device->set;
	struct ibv_port_attr attributes = {
		.state = port->is_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096,
		.active_mtu = set->active_mtu, .gid_tbl_len = port->gid_count, .max_msg_sz = 1u << 30,
		.pkey_tbl_len = port->pkey_count, .lid = port->lid, .sm_lid = 1, .active_width = 2,
		.active_speed = 32, .phys_state = 5,
		.link_layer = port->is_infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
		.flags = set->grh_required ? IBV_QPF_GRH_REQUIRED : 0,
	};
	pthread_mutex_unlock(&lock);
	memcpy(compatible, &attributes, offsetof(struct ibv_port_attr, flags) + 1);
	return 0;
}

static void send_event(struct context *context, const struct ibv_async_event *event)
{
	if (write(context->event_pipe[1], event, sizeof(*event)) != sizeof(*event))
		complain("events of %s are not read", context->device->ibv.name);
}

void raise_event(struct device *device, enum ibv_event_type kind)
{
	const struct ibv_async_event event = {.event_type = kind, .element.port_num = 1};
	for (struct context *context = contexts; context; context = context->next)
		if (context->device == device)
			send_event(context, &event);
}

void raise_event_of(struct ibv_context *owner, enum ibv_event_type kind, void *element)
{
	const struct ibv_async_event event = {.event_type = kind, .element.qp = element};
	send_event((struct context *)owner, &event);
}

static void change_lid(struct device *device)
{
	char path[700];
	device->ports[0].lid = device->set.new_lid;
	snprintf(path, sizeof(path), "%s/ports/1/lid", device->directory);
	FILE *file = fopen(path, "w");
	if (!file)
		complain("%s cannot be written", path);
	fprintf(file, "0x%lx\n", device->set.new_lid);
	fclose(file);
}

static void write_gids(struct device *device, const union ibv_gid *gids)
{
	char path[700], text[INET6_ADDRSTRLEN];
	struct port *port = &device->ports[0];
	memcpy(port->gids, gids, sizeof(port->gids));
	for (int index = 0; index < port->gid_count; index++) {
		snprintf(path, sizeof(path), "%s/ports/1/gids/%d", device->directory, index);
		FILE *file = fopen(path, "w");
		if (!file)
			complain("%s cannot be written", path);
		fputs(inet_ntop(AF_INET6, gids[index].raw, text, sizeof(text)), file);
		fclose(file);
	}
}

/* The subnet manager has given the subnet another prefix. */
static void change_prefix(struct device *device)
{
	union ibv_gid gids[MAX_TABLE];
	memcpy(gids, device->ports[0].gids, sizeof(gids));
	for (int index = 0; index < device->ports[0].gid_count; index++) {
		const uint8_t prefix[8] = {0xfe, 0xc0, [7] = device->set.new_prefix};
		memcpy(gids[index].raw, prefix, sizeof(prefix));
	}
	write_gids(device, gids);
}

/* GIDs that are absent, and the port that gets them back. */
struct absence {
	struct device *device;
	union ibv_gid gids[MAX_TABLE];
};

static void *restore_gids(void *argument)
{
	struct absence *absence = argument;
	usleep(absence->device->set.absent_ms * 1000);
	pthread_mutex_lock(&lock);
	write_gids(absence->device, absence->gids);
	pthread_mutex_unlock(&lock);
	free(absence);
	return NULL;
}

/* The network interface has no address for a while, as a bond that changes its link. The address is gone before another request
   is carried out: a thread that a busy machine starts late would remove it after the transfer. */
static void lose_gids(struct device *device)
{
	static const union ibv_gid none[MAX_TABLE];
	struct absence *absence = malloc(sizeof(*absence));
	pthread_t thread;
	absence->device = device;
	memcpy(absence->gids, device->ports[0].gids, sizeof(absence->gids));
	write_gids(device, none);
	if (pthread_create(&thread, NULL, restore_gids, absence))
		complain("no thread");
	pthread_detach(thread);
}

/* A request was carried out, after which something may happen. */
void count_request(struct device *device)
{
	struct settings *set = &device->set;
	if (device->requests++ != set->event_after)
		return;
	switch (set->event) {
	case IBV_EVENT_DEVICE_FATAL:
		device->is_dead = true;
		break;
	case IBV_EVENT_LID_CHANGE:
		change_lid(device);
		if (set->new_prefix)
			change_prefix(device);
		break;
	case IBV_EVENT_GID_CHANGE:
		lose_gids(device);
		break;
	case IBV_EVENT_PORT_ERR:
		device->ports[0].is_down = true;
		break;
	}
	raise_event(device, set->event);
}

/* Programs have the counter open. Its text is replaced and never empty, as in sysfs. */
void count_timeout(struct device *device, int port)
{
	char path[700];
	snprintf(path, sizeof(path), "%s/ports/%d/hw_counters/local_ack_timeout_err", device->directory, port);
	int file = open(path, O_WRONLY);
	if (file < 0)
		return;
	dprintf(file, "%ld\n", ++device->timeouts);
	close(file);
}

int ibv_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event)
{
	struct context *context = (struct context *)ibv;
	return read(context->event_pipe[0], event, sizeof(*event)) == sizeof(*event) ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

const char *ibv_event_type_str(enum ibv_event_type kind)
{
	static const char *const words[] = {
		[IBV_EVENT_CQ_ERR] = "CQ error", [IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
		[IBV_EVENT_DEVICE_FATAL] = "local catastrophic error", [IBV_EVENT_PORT_ACTIVE] = "port active",
		[IBV_EVENT_PORT_ERR] = "port error", [IBV_EVENT_LID_CHANGE] = "LID change",
	};
	const char *word = (unsigned)kind < sizeof(words) / sizeof(words[0]) ? words[kind] : NULL;
	return word ?: "unknown";
}
