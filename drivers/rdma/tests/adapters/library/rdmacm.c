/*
 * A librdmacm without hardware, which only resolves addresses and routes. The file `path` in the directory that looks
 * like sysfs is the subnet manager's path record: service level, MTU (enum ibv_mtu), hop limit and LID. If a number
 * follows, the subnet manager answers only so many times. The path is that from the port whose GID the file `path_from`
 * names to the one of `path_to`, and every second answer is that for the way back. The file `ibacm` has two numbers: after so many answers, ibacm takes so many milliseconds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct channel {
	struct rdma_event_channel cm;
	int write_end;
};

struct rdma_event_channel *rdma_create_event_channel(void)
{
	int ends[2];
	if (pipe(ends))
		return NULL;
	struct channel *channel = calloc(1, sizeof(*channel));
	channel->cm.fd = ends[0];
	channel->write_end = ends[1];
	return &channel->cm;
}

void rdma_destroy_event_channel(struct rdma_event_channel *cm)
{
	struct channel *channel = (struct channel *)cm;
	close(cm->fd);
	close(channel->write_end);
	free(channel);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space space)
{
	*id = calloc(1, sizeof(**id));
	(*id)->channel = channel;
	(*id)->context = context;
	(*id)->ps = space;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	free(id->route.path_rec);
	free(id);
	return 0;
}

static int raise_event(struct rdma_cm_id *id, enum rdma_cm_event_type kind, int status)
{
	struct rdma_cm_event *event = calloc(1, sizeof(*event));
	*event = (struct rdma_cm_event){.id = id, .event = kind, .status = status};
	struct channel *channel = (struct channel *)id->channel;
	return write(channel->write_end, &event, sizeof(event)) == sizeof(event) ? 0 : -1;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	return read(channel->fd, event, sizeof(*event)) == sizeof(*event) ? 0 : -1;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	free(event);
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int milliseconds)
{
	(void)from, (void)to, (void)milliseconds;
	return raise_event(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
}

/* The GID in the file that another file names; zeros without it. */
static void read_gid(const char *file, union ibv_gid *gid)
{
	const char *sysfs = getenv("SYSFS_PATH") ?: "/sys";
	char name[512], place[256] = "", text[INET6_ADDRSTRLEN] = "";
	snprintf(name, sizeof(name), "%s/%s", sysfs, file);
	FILE *names = fopen(name, "r");
	if (!names || fscanf(names, "%255s", place) != 1)
		abort();
	fclose(names);
	snprintf(name, sizeof(name), "%s/%s", sysfs, place);
	FILE *gids = fopen(name, "r");
	if (!gids || fscanf(gids, "%45s", text) != 1 || inet_pton(AF_INET6, text, gid->raw) != 1)
		memset(gid, 0, sizeof(*gid));
	if (gids)
		fclose(gids);
}

/* ibacm is asked first, and its answer is waited for. */
static void wait_for_ibacm(void)
{
	char name[512];
	static atomic_uint asked;
	unsigned answers, milliseconds;
	snprintf(name, sizeof(name), "%s/ibacm", getenv("SYSFS_PATH") ?: "/sys");
	FILE *file = fopen(name, "r");
	if (!file)
		return;
	if (fscanf(file, "%u %u", &answers, &milliseconds) != 2)
		abort();
	fclose(file);
	if (atomic_fetch_add(&asked, 1) >= answers)
		usleep(milliseconds * 1000);
}

int rdma_resolve_route(struct rdma_cm_id *id, int milliseconds)
{
	char name[512];
	static atomic_uint asked, answered;
	unsigned service_level, mtu, hop_limit, lid, answers;
	(void)milliseconds;
	wait_for_ibacm();
	snprintf(name, sizeof(name), "%s/path", getenv("SYSFS_PATH") ?: "/sys");
	FILE *file = fopen(name, "r");
	if (!file)
		return raise_event(id, RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT);
	int count = fscanf(file, "%u %u %u %u %u", &service_level, &mtu, &hop_limit, &lid, &answers);
	fclose(file);
	if (count < 4)
		abort();
	if (count == 5 && atomic_fetch_add(&asked, 1) >= answers)
		return raise_event(id, RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT);
	id->route.path_rec = calloc(1, sizeof(*id->route.path_rec));
	id->route.num_paths = 1;
	id->route.path_rec->sl = service_level;
	id->route.path_rec->mtu = mtu;
	id->route.path_rec->hop_limit = hop_limit;
	id->route.path_rec->dlid = htobe16(lid);
	bool is_back = atomic_fetch_add(&answered, 1) % 2;
	read_gid(is_back ? "path_to" : "path_from", &id->route.path_rec->sgid);
	read_gid(is_back ? "path_from" : "path_to", &id->route.path_rec->dgid);
	return raise_event(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
}

const char *rdma_event_str(enum rdma_cm_event_type kind)
{
	return kind == RDMA_CM_EVENT_ROUTE_ERROR ? "RDMA_CM_EVENT_ROUTE_ERROR" : "another event";
}

/* Connections of iWARP are not made. */
static int refuse(void)
{
	errno = ENODEV;
	return -1;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	(void)id, (void)address;
	return refuse();
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *parameters)
{
	(void)id, (void)parameters;
	return refuse();
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)id, (void)backlog;
	return refuse();
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *parameters)
{
	(void)id, (void)parameters;
	return refuse();
}

int rdma_reject(struct rdma_cm_id *id, const void *private, uint8_t length)
{
	(void)id, (void)private, (void)length;
	return refuse();
}
