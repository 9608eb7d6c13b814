// Children that only sleep: `sleeping_children COUNT` forks them at a line on its standard input, prints `ready`, and
// computes. They end with their parent.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2 || getchar() == EOF) {
        return 2;
    }
    pid_t parent = getpid();
    for (int left = atoi(argv[1]); left > 0; left--) {
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 1;
        }
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            while (getppid() == parent) {
                pause();
            }
            return 0;
        }
    }
    puts("ready");
    fflush(stdout);
    for (volatile unsigned long n = 0;; n++) {
    }
}
