#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Reads exactly `length` bytes; 0 when the peer closed before the first one. */
static int read_exactly(int fd, void *into, size_t length) {
  uint8_t *at = into;
  size_t left = length;
  while (left > 0) {
    ssize_t got = read(fd, at, left);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      if (errno == ECONNRESET) return 0;
      fail("read", "control channel");
    }
    if (got == 0) {
      if (left == length) return 0;
      fail_with("read", "control channel: frame cut off", EPROTO);
    }
    at += got;
    left -= (size_t)got;
  }
  return 1;
}

int frame_read(int fd, struct frame *frame) {
  static uint8_t *buffer;
  static size_t room;
  uint32_t length;
  if (!read_exactly(fd, &length, sizeof length)) return 0;
  if (length == 0 || length > MAX_FRAME) fail_with("read", "control channel: frame length", EPROTO);
  if (length + 1 > room) {
    room = (size_t)length + 1;
    buffer = realloc(buffer, room);
    if (buffer == NULL) fail("realloc", "frame");
  }
  if (!read_exactly(fd, buffer, length)) fail_with("read", "control channel: frame cut off", EPROTO);
  buffer[length] = 0;
  frame->type = buffer[0];
  frame->data = buffer + 1;
  frame->length = length - 1;
  return 1;
}

void frame_say(int fd, uint8_t type, const void *parts[], const size_t lengths[], int count) {
  uint8_t head[5];
  size_t total = 1;
  struct iovec vector[8];
  vector[0] = (struct iovec){head, sizeof head};
  for (int i = 0; i < count; i++) {
    total += lengths[i];
    vector[i + 1] = (struct iovec){(void *)(uintptr_t)parts[i], lengths[i]};
  }
  uint32_t length = (uint32_t)total;
  memcpy(head, &length, 4);
  head[4] = type;
  struct msghdr message = {.msg_iov = vector, .msg_iovlen = (size_t)count + 1};
  size_t left = total + 4;
  while (left > 0) {
    ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    /* The channel of entry may be a pipe; SIGPIPE is ignored there. */
    if (sent < 0 && errno == ENOTSOCK) sent = writev(fd, message.msg_iov, (int)message.msg_iovlen);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) fail("sendmsg", "control channel");
    left -= (size_t)sent;
    while (sent > 0) {
      size_t step = message.msg_iov[0].iov_len;
      if ((size_t)sent < step) {
        message.msg_iov[0].iov_base = (uint8_t *)message.msg_iov[0].iov_base + sent;
        message.msg_iov[0].iov_len -= (size_t)sent;
        break;
      }
      sent -= (ssize_t)step;
      message.msg_iov++;
      message.msg_iovlen--;
    }
  }
}

void say_simple(int fd, uint8_t type) { frame_say(fd, type, NULL, NULL, 0); }

void say_number(int fd, uint8_t type, uint64_t a) {
  const void *parts[] = {&a};
  size_t lengths[] = {sizeof a};
  frame_say(fd, type, parts, lengths, 1);
}

void say_numbers(int fd, uint8_t type, uint64_t a, uint64_t b) {
  const void *parts[] = {&a, &b};
  size_t lengths[] = {sizeof a, sizeof b};
  frame_say(fd, type, parts, lengths, 2);
}

void say_hello(int fd, const char *stage) {
  uint64_t version = PROTOCOL_VERSION;
  const void *parts[] = {stage, &version};
  size_t lengths[] = {strlen(stage) + 1, sizeof version};
  frame_say(fd, SAY_HELLO, parts, lengths, 2);
}

void say_fact(int fd, const char *id, const char *from, const void *bytes, size_t length) {
  const void *parts[] = {id, from, bytes};
  size_t lengths[] = {strlen(id) + 1, strlen(from) + 1, length};
  frame_say(fd, SAY_FACT, parts, lengths, 3);
}

void say_fact_text(int fd, const char *id, const char *from, const char *text) { say_fact(fd, id, from, text, strlen(text)); }

void say_probe(int fd, const char *id, const char *attempt, int error) {
  uint64_t number = (uint64_t)error;
  const void *parts[] = {id, attempt, &number};
  size_t lengths[] = {strlen(id) + 1, strlen(attempt) + 1, sizeof number};
  frame_say(fd, SAY_PROBE, parts, lengths, 3);
}

struct cursor cursor_of(const struct frame *frame) { return (struct cursor){frame->data, frame->data + frame->length}; }

const char *take_string(struct cursor *cursor) {
  const uint8_t *start = cursor->at;
  const uint8_t *end = start < cursor->end ? memchr(start, 0, (size_t)(cursor->end - start)) : NULL;
  if (end == NULL) fail_with("parse", "control channel: string", EPROTO);
  cursor->at = end + 1;
  return (const char *)start;
}

uint64_t take_number(struct cursor *cursor) {
  uint64_t value;
  if ((size_t)(cursor->end - cursor->at) < sizeof value) fail_with("parse", "control channel: number", EPROTO);
  memcpy(&value, cursor->at, sizeof value);
  cursor->at += sizeof value;
  return value;
}

int cursor_empty(const struct cursor *cursor) { return cursor->at >= cursor->end; }

void *copy_bytes(const void *bytes, size_t length) {
  void *copy = malloc(length > 0 ? length : 1);
  if (copy == NULL) fail("malloc", "copy");
  memcpy(copy, bytes, length);
  return copy;
}

char *copy_string(const char *text) { return copy_bytes(text, strlen(text) + 1); }

char **take_strings(struct cursor *cursor) {
  size_t length = (size_t)(cursor->end - cursor->at), count = 0;
  char *text = copy_bytes(cursor->at, length);
  for (size_t i = 0; i < length; i++) count += text[i] == 0;
  if (length > 0 && text[length - 1] != 0) fail_with("parse", "control channel: strings", EPROTO);
  char **list = calloc(count + 1, sizeof *list);
  if (list == NULL) fail("calloc", "strings");
  for (size_t i = 0, at = 0; i < count; i++) {
    list[i] = text + at;
    at += strlen(text + at) + 1;
  }
  cursor->at = cursor->end;
  return list;
}
