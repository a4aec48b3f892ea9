/*
 * The network of a job whose rules name hosts: one loopback on which every address is local, and listening sockets that are
 * handed to the host. There is no route out; whatever the job dials is accepted by the host's process, or by nobody.
 * netlink(7), rtnetlink(7), unix(7) SCM_RIGHTS.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* lo has index 1 in every new network namespace. */
#define LOOPBACK 1
/* linux/in.h and linux/in6.h; not in every libc's headers. */
enum { IP_FREEBIND_ = 15, IPV6_FREEBIND_ = 78 };
/* Connections that wait for accept(2), for each listener. The kernel's somaxconn bounds it. */
#define BACKLOG 4096

struct request {
  struct nlmsghdr head;
  union {
    struct ifinfomsg link;
    struct ifaddrmsg address;
    struct rtmsg route;
  } body;
  char attributes[128];
};

static void attribute(struct request *request, unsigned short type, const void *value, size_t length) {
  size_t at = NLMSG_ALIGN(request->head.nlmsg_len);
  struct rtattr *one = (struct rtattr *)((char *)request + at);
  if (at + RTA_LENGTH(length) > sizeof *request) fail_with("netlink", "attribute", E2BIG);
  one->rta_type = type;
  one->rta_len = (unsigned short)RTA_LENGTH(length);
  memcpy(RTA_DATA(one), value, length);
  request->head.nlmsg_len = (unsigned)(at + RTA_LENGTH(length));
}

static int netlink_open(void) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) fail("socket", "AF_NETLINK");
  return fd;
}

/* Sends one request and waits for its acknowledgement. */
static void change(struct request *request, const char *what, const char *subject) {
  struct {
    struct nlmsghdr head;
    struct nlmsgerr error;
    char rest[512];
  } answer;
  int fd = netlink_open();
  request->head.nlmsg_seq = 1;
  if (send(fd, request, request->head.nlmsg_len, 0) < 0) fail("send", what);
  ssize_t got = recv(fd, &answer, sizeof answer, 0);
  if (got < (ssize_t)(sizeof answer.head + sizeof answer.error)) fail("recv", what);
  if (answer.head.nlmsg_type != NLMSG_ERROR) fail_with("recv", what, EPROTO);
  if (answer.error.error != 0) fail_with(what, subject, -answer.error.error);
  close(fd);
}

static struct request request_of(unsigned short type, unsigned short flags, size_t body) {
  struct request request;
  memset(&request, 0, sizeof request);
  request.head.nlmsg_type = type;
  request.head.nlmsg_flags = (unsigned short)(NLM_F_REQUEST | NLM_F_ACK | flags);
  request.head.nlmsg_len = (unsigned)NLMSG_LENGTH(body);
  return request;
}

void loopback_up(void) {
  struct request request = request_of(RTM_NEWLINK, 0, sizeof request.body.link);
  request.body.link = (struct ifinfomsg){.ifi_family = AF_UNSPEC, .ifi_index = LOOPBACK, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
  change(&request, "RTM_NEWLINK", "lo");
}

/* Bytes of an address and its family. */
static size_t bytes_of(const char *text, void *into, int *family) {
  if (inet_pton(AF_INET, text, into) == 1) {
    *family = AF_INET;
    return 4;
  }
  if (inet_pton(AF_INET6, text, into) == 1) {
    *family = AF_INET6;
    return 16;
  }
  fail_with("inet_pton", text, EINVAL);
}

void add_address(const char *text, unsigned prefix) {
  unsigned char bytes[16];
  int family;
  size_t length = bytes_of(text, bytes, &family);
  struct request request = request_of(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof request.body.address);
  request.body.address = (struct ifaddrmsg){.ifa_family = (unsigned char)family, .ifa_prefixlen = (unsigned char)prefix, .ifa_index = LOOPBACK};
  if (family == AF_INET6) request.body.address.ifa_flags = IFA_F_NODAD;
  attribute(&request, IFA_LOCAL, bytes, length);
  attribute(&request, IFA_ADDRESS, bytes, length);
  change(&request, "RTM_NEWADDR", text);
}

/* `local 0.0.0.0/0 dev lo`, or ::/0: every address of that family is this machine. `source`: what the job's own end is called. */
void all_addresses_local(const char *source) {
  unsigned char bytes[16];
  int family;
  size_t length = bytes_of(source, bytes, &family);
  struct request request = request_of(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof request.body.route);
  request.body.route = (struct rtmsg){
      .rtm_family = (unsigned char)family,
      .rtm_table = RT_TABLE_LOCAL,
      .rtm_protocol = RTPROT_BOOT,
      .rtm_scope = family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE,
      .rtm_type = RTN_LOCAL,
  };
  int index = LOOPBACK;
  attribute(&request, RTA_OIF, &index, sizeof index);
  attribute(&request, RTA_PREFSRC, bytes, length);
  change(&request, "RTM_NEWROUTE local default", source);
}

/* Without a listener or a dialer the descriptor of that number is somebody else's. */
static int channel_used;

/* One message of the form in which Node passes handles between its own processes, with the descriptor. */
static void hand_over(const char *line, int fd) {
  char room[CMSG_SPACE(sizeof fd)];
  memset(room, 0, sizeof room);
  struct iovec vector = {(void *)(uintptr_t)line, strlen(line)};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
  }
  channel_used = 1;
  ssize_t sent;
  do sent = sendmsg(FD_HANDLES, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent != (ssize_t)vector.iov_len) fail("sendmsg", "handles");
}

void close_handles(void) {
  if (channel_used) close(FD_HANDLES);
}

/* The next line of the channel of handles, without its end; longer ones are cut. 0: the peer closed. */
static int next_line(char *line, size_t room) {
  static char buffer[4096];
  static size_t start, end;
  size_t used = 0;
  for (;;) {
    while (start < end) {
      char byte = buffer[start++];
      if (byte == '\n') {
        line[used] = 0;
        return 1;
      }
      if (used + 1 < room) line[used++] = byte;
    }
    ssize_t got = read(FD_HANDLES, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    start = 0;
    end = (size_t)got;
  }
}

static socklen_t socket_address(const char *text, uint64_t port, struct sockaddr_storage *address) {
  memset(address, 0, sizeof *address);
  unsigned char bytes[16];
  int family;
  bytes_of(text, bytes, &family);
  if (family == AF_INET) {
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    *four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    memcpy(&four->sin_addr, bytes, 4);
    return sizeof *four;
  }
  struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
  *six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  memcpy(&six->sin6_addr, bytes, 16);
  return sizeof *six;
}

/*
 * Opens a listener in the network namespace of this process and hands it to the host. This process keeps nothing of it. An
 * address that no interface carries can be bound because of IP_FREEBIND.
 */
void open_listener(uint64_t kind, const char *text, uint64_t port) {
  struct sockaddr_storage address;
  socklen_t length = socket_address(text, port, &address);
  int six = address.ss_family == AF_INET6, on = 1;
  int stream = kind == LISTEN_TCP;
  int fd = socket(address.ss_family, (stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) fail("socket", text);
  if (six && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0) fail("setsockopt", "IPV6_V6ONLY");
  int freebind = six ? setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND_, &on, sizeof on) : setsockopt(fd, IPPROTO_IP, IP_FREEBIND_, &on, sizeof on);
  if (freebind != 0) fail("setsockopt", "IP_FREEBIND");
  char what[128], line[256];
  snprintf(what, sizeof what, "%s port %llu", text, (unsigned long long)port);
  if (bind(fd, (struct sockaddr *)&address, length) != 0) fail("bind", what);
  if (stream && listen(fd, BACKLOG) != 0) fail("listen", what);
  snprintf(line, sizeof line, "{\"cmd\":\"NODE_HANDLE\",\"type\":\"%s\",\"msg\":{\"listener\":\"%s\",\"address\":\"%s\",\"port\":%llu}}\n",
           stream ? "net.Native" : "dgram.Native", stream ? "tcp" : "udp", text, (unsigned long long)port);
  hand_over(line, fd);
  close(fd);
  /* Node answers each handle (NODE_HANDLE_ACK): until then its copy may still be under way. */
  char answer[256];
  if (!next_line(answer, sizeof answer)) fail_with("read", "handles", EPIPE);
}

static int dial(uint64_t port) {
  static const char *const loopbacks[] = {"127.0.0.1", "::1"};
  int error = 0;
  for (size_t i = 0; i < 2; i++) {
    struct sockaddr_storage address;
    socklen_t length = socket_address(loopbacks[i], port, &address);
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    struct timeval patience = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, length) == 0) {
      fcntl(fd, F_SETFL, O_NONBLOCK);
      return fd;
    }
    if (error == 0) error = errno;
    close(fd);
  }
  errno = error;
  return -1;
}

/*
 * Published ports: a process beside the sandbox, in its network, that connects to the job's loopback when the host asks and
 * hands the connection over. A request is the line {"dial":[id,port]}. It ends with the channel, and with its parent.
 */
void start_dialer(void) {
  channel_used = 1;
  pid_t pid = fork();
  if (pid < 0) fail("fork", "dialer");
  if (pid > 0) return;
  fail_control = -1;
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) _exit(1);
  if (syscall(SYS_close_range, 0u, (unsigned)FD_HANDLES - 1, 0u) != 0 || syscall(SYS_close_range, (unsigned)FD_HANDLES + 1, ~0u, 0u) != 0) _exit(1);
  char line[256], answer[256];
  while (next_line(line, sizeof line)) {
    unsigned long long id, port;
    if (sscanf(line, "{\"dial\":[%llu,%llu]}", &id, &port) != 2) continue; /* an acknowledgement */
    int fd = dial(port);
    if (fd < 0) snprintf(answer, sizeof answer, "{\"dialled\":%llu,\"errno\":%d}\n", id, errno);
    else snprintf(answer, sizeof answer, "{\"cmd\":\"NODE_HANDLE\",\"type\":\"net.Native\",\"msg\":{\"dialled\":%llu}}\n", id);
    hand_over(answer, fd);
    if (fd >= 0) close(fd);
  }
  _exit(0);
}

/* A line for each message of a dump; what the messages hold is read by the host. */
struct listing {
  char *text;
  size_t used, room;
};

static void add_line(struct listing *listing, const char *line) {
  size_t length = strlen(line);
  if (listing->used + length + 1 > listing->room) {
    listing->room = (listing->room + length + 1) * 2;
    listing->text = realloc(listing->text, listing->room);
    if (listing->text == NULL) fail("realloc", "dump");
  }
  memcpy(listing->text + listing->used, line, length);
  listing->used += length;
  listing->text[listing->used++] = '\n';
}

static void format_address(const struct nlmsghdr *head, char *line, size_t room) {
  const struct ifaddrmsg *body = NLMSG_DATA(head);
  char text[INET6_ADDRSTRLEN] = "?", name[IF_NAMESIZE] = "?";
  size_t left = IFA_PAYLOAD(head);
  for (const struct rtattr *one = IFA_RTA(body); RTA_OK(one, left); one = RTA_NEXT(one, left)) {
    if (one->rta_type == IFA_LOCAL || (one->rta_type == IFA_ADDRESS && body->ifa_family == AF_INET6)) inet_ntop(body->ifa_family, RTA_DATA(one), text, sizeof text);
  }
  if (body->ifa_index == LOOPBACK) snprintf(name, sizeof name, "lo");
  else snprintf(name, sizeof name, "#%u", body->ifa_index);
  snprintf(line, room, "%s/%u %s", text, body->ifa_prefixlen, name);
}

static void format_route(const struct nlmsghdr *head, char *line, size_t room) {
  const struct rtmsg *body = NLMSG_DATA(head);
  char to[INET6_ADDRSTRLEN] = "";
  int out = 0;
  size_t left = RTM_PAYLOAD(head);
  for (const struct rtattr *one = RTM_RTA(body); RTA_OK(one, left); one = RTA_NEXT(one, left)) {
    if (one->rta_type == RTA_DST) inet_ntop(body->rtm_family, RTA_DATA(one), to, sizeof to);
    if (one->rta_type == RTA_OIF) memcpy(&out, RTA_DATA(one), sizeof out);
  }
  char through[IF_NAMESIZE + 8];
  if (out == LOOPBACK) snprintf(through, sizeof through, "lo");
  else snprintf(through, sizeof through, "#%d", out);
  const char *any = body->rtm_family == AF_INET ? "0.0.0.0" : "::";
  snprintf(line, room, "%s %s %s/%u %s", body->rtm_family == AF_INET ? "v4" : "v6", body->rtm_type == RTN_LOCAL ? "local" : "other", to[0] != 0 ? to : any,
           body->rtm_dst_len, through);
}

static void dump(int control, const char *id, const char *from, unsigned short type) {
  struct {
    struct nlmsghdr head;
    struct rtgenmsg body;
  } request = {
      .head = {.nlmsg_len = NLMSG_LENGTH(sizeof request.body), .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP, .nlmsg_seq = 1},
      .body = {.rtgen_family = AF_UNSPEC},
  };
  int fd = netlink_open();
  struct listing listing = {NULL, 0, 0};
  if (send(fd, &request, request.head.nlmsg_len, 0) < 0) fail("send", from);
  for (int done = 0; !done;) {
    static union {
      struct nlmsghdr head;
      char bytes[1 << 15];
    } answer;
    ssize_t got = recv(fd, &answer, sizeof answer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail("recv", from);
    size_t left = (size_t)got;
    for (const struct nlmsghdr *one = &answer.head; NLMSG_OK(one, left); one = NLMSG_NEXT(one, left)) {
      char line[256];
      if (one->nlmsg_type == NLMSG_DONE || one->nlmsg_type == NLMSG_ERROR) {
        done = 1;
        break;
      }
      if (type == RTM_GETADDR) format_address(one, line, sizeof line);
      else format_route(one, line, sizeof line);
      add_line(&listing, line);
    }
  }
  close(fd);
  say_fact(control, id, from, listing.text, listing.used);
  free(listing.text);
}

/* Addresses and routes of every table, as the command's process sees them. */
void report_network(int control) {
  dump(control, "net.addresses", "RTM_GETADDR of the command's process", RTM_GETADDR);
  dump(control, "net.tables", "RTM_GETROUTE of the command's process", RTM_GETROUTE);
}
