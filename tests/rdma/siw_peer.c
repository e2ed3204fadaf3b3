/* One end of a conversation by way of verbs, over whatever iWARP device has the address: with Linux's siw it is the other side
 * of tests/src/bin/iwarp_peer.rs. Follows the script of tests/src/iwarp/script.rs; whoever changes one changes the other.
 *
 *   siw_peer listen|connect ADDRESS PORT [late] [offend NAME | suffer | refused]
 *
 * late: the responder speaks first ("ready to receive" was agreed on). offend: commits this violation and expects to be cut
 * off; suffer: the peer commits one. refused: no connection comes about, and that is right. Ends with 0 if
 * everything was as it should be. */

#include "verbs.h"

#include <arpa/inet.h>
#include <endian.h>

#define HALF (WINDOW / 2)
#define UNTOUCHED 0xee
#define MAGIC 0x53495731

enum { SENDS = 1000, WRITES = 2000, READS = 3000, BOTH = 4000, INVALIDATE = 5000, BYE = 6000 };

static const size_t sizes[] = { 0, 1, 3, 4, 1025, 4095, 4096, 20000, 100000 };
static const size_t at_once[] = { 4096, 20000, 0, 100000 };
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct remote their_window, their_spare;
/* What memory ought to hold. */
static uint8_t expected[WINDOW];

static uint8_t octet(uint32_t tag, uint32_t index)
{
	return ((seed + tag * 0x01000193u + index) * 0x9e3779b1u) >> 24;
}

static void pattern(uint8_t *to, uint32_t tag, size_t from, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = octet(tag, from + i);
}

static void check(const char *what, uint32_t tag, const uint8_t *bytes, size_t len)
{
	if (memcmp(bytes, expected, len) == 0)
		return;
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != expected[i])
			die("%s %u: octet %zu of %zu is %02x, not %02x", what, tag, i, len, bytes[i], expected[i]);
}

static const struct remote nobody;

static void send_out(size_t len, int flags)
{
	int number = done_others + 1;

	MUST(request(IBV_WR_SEND, out, 0, len, nobody, flags) == 0);
	wait_until("a Send", &done_others, number);
}

/* The next Send of the peer's, whose octets have been put into `expected`. */
static void receive(const char *what, uint32_t tag, size_t len)
{
	int buffer;

	wait_until(what, &last_come, first_come + 1);
	buffer = come[first_come % BUFFERS].buffer;
	if (come[first_come % BUFFERS].len != len)
		die("%s %u: %u octets, not %zu", what, tag, come[first_come % BUFFERS].len, len);
	check(what, tag, buffer_at(buffer), len);
	first_come++;
	post_receive(buffer);
}

static void put_tag(uint8_t *to, uint32_t tag)
{
	uint32_t word = htonl(tag);

	memcpy(to, &word, 4);
}

static void say(uint32_t tag)
{
	put_tag(out->addr, tag);
	send_out(4, 0);
}

static void hear(uint32_t tag)
{
	put_tag(expected, tag);
	receive("a step", tag, 4);
}

static void sends(int acts, uint32_t tag)
{
	for (size_t i = 0; i < COUNT(sizes); i++, tag++) {
		if (acts) {
			pattern(out->addr, tag, 0, sizes[i]);
			send_out(sizes[i], tag % 2 ? IBV_SEND_SOLICITED : 0);
			hear(tag);
		} else {
			pattern(expected, tag, 0, sizes[i]);
			receive("a Send", tag, sizes[i]);
			say(tag);
		}
	}
}

static void check_written(uint32_t tag, size_t from, size_t len)
{
	memset(expected, UNTOUCHED, HALF);
	pattern(expected + from, tag, 0, len);
	check("a Write", tag, window->addr, HALF);
}

static void writes(int acts, uint32_t tag)
{
	for (size_t i = 0; i < COUNT(sizes); i++, tag++) {
		size_t from = 61 + 7 * (tag % 100);

		if (acts) {
			struct remote to = { their_window.stag, their_window.base + from };
			int number = done_others + 1;

			hear(tag);
			pattern(out->addr, tag, 0, sizes[i]);
			MUST(request(IBV_WR_RDMA_WRITE, out, 0, sizes[i], to, 0) == 0);
			wait_until("a Write", &done_others, number);
			say(tag);
		} else {
			memset(window->addr, UNTOUCHED, HALF);
			say(tag);
			hear(tag);
			check_written(tag, from, sizes[i]);
		}
	}
}

/* Reads from, to, so many octets of the peer's window, all at once. */
static void read_and_check(uint32_t tag, int n, size_t list[][3])
{
	int number = done_reads + n;

	memset(expected, UNTOUCHED, WINDOW);
	memset(sink->addr, UNTOUCHED, WINDOW);
	for (int i = 0; i < n; i++) {
		struct remote source = { their_window.stag, their_window.base + list[i][0] };

		MUST(request(IBV_WR_RDMA_READ, sink, list[i][1], list[i][2], source, 0) == 0);
		pattern(expected + list[i][1], tag, list[i][0], list[i][2]);
	}
	wait_until("Reads", &done_reads, number);
	check("a Read", tag, sink->addr, WINDOW);
}

static void reads(int acts, uint32_t tag)
{
	size_t to = 0, list[COUNT(at_once)][3];

	if (!acts) {
		pattern(window->addr, tag, 0, WINDOW);
		say(tag);
		hear(tag);
		return;
	}
	hear(tag);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		size_t one[1][3] = { { 61 + 8191 * i, 17 * i, sizes[i] } };

		read_and_check(tag, 1, one);
	}
	for (size_t i = 0; i < COUNT(at_once); i++) {
		to += at_once[i] + 5;
		list[i][0] = to + 3;
		list[i][1] = to - at_once[i];
		list[i][2] = at_once[i];
	}
	read_and_check(tag, COUNT(at_once), list);
	say(tag);
}

static void invalidate(int acts, uint32_t tag)
{
	if (acts) {
		int number = done_others + 1;

		put_tag(out->addr, tag);
		MUST(request(IBV_WR_SEND_WITH_INV, out, 0, 4, their_spare,
			     tag == INVALIDATE ? 0 : IBV_SEND_SOLICITED) == 0);
		wait_until("a Send with Invalidate", &done_others, number);
		hear(tag);
	} else {
		int at = first_come % BUFFERS;

		/* Not every provider says which one has ended; that it has is another test's ("read-ended"). */
		hear(tag);
		if (come[at].with_inv && come[at].inv != spare->rkey)
			die("region %08x has ended, not %08x", come[at].inv, spare->rkey);
		say(tag);
	}
}

static void both(void)
{
	uint32_t own = initiator ? BOTH : BOTH + 100, theirs = initiator ? BOTH + 100 : BOTH;
	size_t len = 100000, at = 9;
	int number;

	memset(window->addr, UNTOUCHED, HALF);
	pattern((uint8_t *)window->addr + HALF, own, 0, HALF);
	if (initiator) {
		say(BOTH);
		hear(BOTH);
	} else {
		hear(BOTH);
		say(BOTH);
	}
	number = done_others + 2;
	pattern(out->addr, own + 1, 0, len);
	pattern((uint8_t *)out->addr + len, own + 2, 0, 4096);
	MUST(request(IBV_WR_RDMA_WRITE, out, 0, len, (struct remote){ their_window.stag, their_window.base + at }, 0) == 0);
	MUST(request(IBV_WR_RDMA_READ, sink, 0, len,
		     (struct remote){ their_window.stag, their_window.base + HALF + at }, 0) == 0);
	MUST(request(IBV_WR_SEND, out, len, 4096, nobody, 0) == 0);
	wait_until("the Read", &done_reads, done_reads + 1);
	wait_until("the Write and the Send", &done_others, number);
	pattern(expected, theirs, at, len);
	check("the Read", theirs, sink->addr, len);
	pattern(expected, theirs + 2, 0, 4096);
	receive("the Send", theirs + 2, 4096);
	check_written(theirs + 1, at, len);
}

static void bye(void)
{
	if (initiator) {
		say(BYE);
		hear(BYE);
		MUST(rdma_disconnect(id) == 0);
		expect_event(RDMA_CM_EVENT_DISCONNECTED);
	} else {
		hear(BYE);
		say(BYE);
		expect_event(RDMA_CM_EVENT_DISCONNECTED);
		rdma_disconnect(id);
	}
}

static void put_remote(uint8_t *to, const struct ibv_mr *mr)
{
	uint64_t base = htobe64((uintptr_t)mr->addr);

	put_tag(to, mr->rkey);
	memcpy(to + 4, &base, 8);
}

static struct remote get_remote(const uint8_t *from)
{
	uint32_t stag;
	uint64_t base;

	memcpy(&stag, from, 4);
	memcpy(&base, from + 4, 8);
	return (struct remote){ ntohl(stag), be64toh(base) };
}

static void hello(int first)
{
	const uint8_t *said;

	put_tag(out->addr, MAGIC);
	put_remote((uint8_t *)out->addr + 4, window);
	put_remote((uint8_t *)out->addr + 16, spare);
	if (first)
		send_out(28, 0);
	wait_until("the peer's hello", &last_come, 1);
	said = buffer_at(come[0].buffer);
	if (come[0].len != 28 || memcmp(said, out->addr, 4))
		die("the peer's hello: %u octets", come[0].len);
	their_window = get_remote(said + 4);
	their_spare = get_remote(said + 16);
	first_come++;
	post_receive(come[0].buffer);
	if (!first)
		send_out(28, 0);
}

static void offend(const char *name)
{
	struct remote nowhere = { their_window.stag ^ 0x5a5a5a00, their_window.base };
	struct remote bounds = { their_window.stag, their_window.base + WINDOW - 4 };
	int wrong = 0;

	if (!strcmp(name, "write-stag"))
		wrong = request(IBV_WR_RDMA_WRITE, out, 0, 12, nowhere, 0);
	else if (!strcmp(name, "write-bounds"))
		wrong = request(IBV_WR_RDMA_WRITE, out, 0, 12, bounds, 0);
	else if (!strcmp(name, "write-rights"))
		wrong = request(IBV_WR_RDMA_WRITE, out, 0, 12, their_spare, 0);
	else if (!strcmp(name, "read-stag"))
		wrong = request(IBV_WR_RDMA_READ, sink, 0, 64, nowhere, 0);
	else if (!strcmp(name, "read-bounds"))
		wrong = request(IBV_WR_RDMA_READ, sink, 0, 64, bounds, 0);
	else if (!strcmp(name, "read-ended")) {
		wrong = request(IBV_WR_SEND_WITH_INV, out, 0, 4, their_spare, 0);
		wrong |= request(IBV_WR_RDMA_READ, sink, 0, 64, their_spare, 0);
	} else if (!strcmp(name, "send-long"))
		wrong = request(IBV_WR_SEND, out, 0, BUFFER + 1, nobody, 0);
	else if (!strcmp(name, "send-unposted"))
		for (int i = 0; i <= BUFFERS; i++)
			wrong |= request(IBV_WR_SEND, out, 0, 4, nobody, 0);
	else
		die("no offence: %s", name);
	MUST(wrong == 0);
}

/* The connection ends, and not because of this end. */
static void cut_off(void)
{
	expect_event(RDMA_CM_EVENT_DISCONNECTED);
	while (completion())
		;
	if (done_reads)
		die("a Read was answered that must not be");
}

int main(int argc, char **argv)
{
	const char *offence = NULL;
	int late = 0, suffers = 0, refused = 0, established;

	if (argc < 4)
		die("siw_peer listen|connect ADDRESS PORT ...");
	initiator = !strcmp(argv[1], "connect");
	for (int i = 4; i < argc; i++) {
		if (!strcmp(argv[i], "late"))
			late = 1;
		else if (!strcmp(argv[i], "suffer"))
			suffers = 1;
		else if (!strcmp(argv[i], "refused"))
			refused = 1;
		else if (!strcmp(argv[i], "offend") && i + 1 < argc)
			offence = argv[++i];
		else
			die("what is %s?", argv[i]);
	}
	established = establish(argv[2], argv[3]);
	if (established == refused)
		die(refused ? "connected" : "no connection");
	if (refused)
		return 0;
	hello(initiator != late);
	if (offence)
		offend(offence);
	if (offence || suffers) {
		cut_off();
		return 0;
	}
	for (int turn = 0; turn < 2; turn++) {
		int acts = (turn == 0) == initiator;

		sends(acts, SENDS + 100 * turn);
		writes(acts, WRITES + 100 * turn);
		reads(acts, READS + 100 * turn);
		invalidate(acts, INVALIDATE + 100 * turn);
	}
	both();
	bye();
	return 0;
}
