/* wire PROGRAM ARG...: runs PROGRAM with the two ends of a cable as descriptors 8 and 9.
 *
 * The cable is a pair of datagram sockets, the replication link between the two hosts. It needs no
 * interface and no address on this machine. The shell cannot create one.
 */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int ends[2], room = 4 << 20;

    if (argc < 2) {
        fputs("usage: wire PROGRAM ARG...\n", stderr);
        return 2;
    }
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0) {
        perror("wire: socketpair");
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        /* A full buffer loses packets: make room for a burst of TCP. */
        setsockopt(ends[i], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
        if (dup2(ends[i], 8 + i) < 0) {
            perror("wire: dup2");
            return 1;
        }
        close(ends[i]);
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
