/* The process that holds the namespaces of a pod. It ends on SIGTERM, and reaps the children that it
   inherits. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, NULL, WNOHANG) > 0) {} }

int main(void) {
    struct sigaction on_end = {.sa_handler = end}, on_child = {.sa_handler = reap};
    sigaction(SIGTERM, &on_end, NULL);
    sigaction(SIGINT, &on_end, NULL);
    sigaction(SIGCHLD, &on_child, NULL);
    for (;;) pause();
}
