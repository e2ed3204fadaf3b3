/* Starts itself as another program in every way there is, from an environment made anew. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *own[] = {"KEPT=it's", NULL};
static char *none[] = {NULL};
static char *declined[] = {"KEPT=it's", "LD_PRELOAD=", NULL};
static char *other[] = {"KEPT=it's", "SHUNT_BUF=8k", NULL};
static char *argv_[] = {"shown", "one", "two words", NULL};

static int show(int argc, char **argv) {
    for (int i = 1; i < argc; i++) printf("%s|", argv[i]);
    char *kept = getenv("KEPT"), *path = getenv("LD_PRELOAD"), *buf = getenv("SHUNT_BUF");
    printf("%d KEPT=%s", argc, kept ? kept : "-");
    /* What the test has to tell apart; without the library there is neither. */
    if (getenv("SHUNT_REPORT") || (path && *path)) printf(" library %s", buf ? buf : "-");
    printf("\n");
    return 0;
}

static void anew(void) {
    clearenv();
    setenv("KEPT", "it's", 1);
}

static int waited(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

/* What this program sees of its environment after a call. */
static void after(int r) {
    int n = 0;
    while (environ && environ[n]) n++;
    printf("returned %d, %d variables, %s\n", r, n, getenv("LD_PRELOAD") ? "changed" : "as before");
}

static int spawn(char *self, char **env, int by_path) {
    pid_t pid;
    fflush(stdout);
    int r = (by_path ? posix_spawnp : posix_spawn)(&pid, self, NULL, NULL, argv_, env);
    return r ? r : waited(pid);
}

/* The longest variable beside `first` with which a program can be started. */
static size_t longest(char *self, char *first, char **pad, size_t low, size_t high) {
    char **env = calloc(64, sizeof *env);
    while (low < high) {
        size_t size = (low + high + 1) / 2, left = size, n = 0;
        env[n++] = first;
        for (; left > 0; n++) {
            size_t len = left < 100000 ? left : 100000;
            pad[n][len] = 0;
            env[n] = pad[n];
            left -= len;
        }
        env[n] = NULL;
        pid_t pid;
        char *quiet[] = {"quiet", NULL};
        int r = posix_spawn(&pid, self, NULL, NULL, quiet, env);
        if (!r) waited(pid);
        for (size_t i = 1; i < n; i++) pad[i][strlen(pad[i])] = 'x';
        if (r) high = size - 1; else low = size;
    }
    free(env);
    return low;
}

static void limits(char *self) {
    char *pad[64];
    for (int i = 0; i < 64; i++) {
        pad[i] = malloc(100002);
        memset(pad[i], 'x', 100001);
        pad[i][100001] = 0;
    }
    size_t a = longest(self, "LD_PRELOAD=", pad, 0, 6200000);
    size_t b = longest(self, "NO_PRELOAD=", pad, a > 2000 ? a - 2000 : 0, a + 2000);
    printf("%s\n", a == b ? "as long as ever" : "not as long");
}

static void errors(char *self) {
    execve(self, argv_, (char **)8);
    printf("%s\n", strerrorname_np(errno));
    char *bad[] = {"A=1", (char *)8, NULL};
    execve(self, argv_, bad);
    printf("%s\n", strerrorname_np(errno));
    execve((char *)8, argv_, own);
    printf("%s\n", strerrorname_np(errno));
    execl("/nonexistent/program", "a", "b", NULL);
    printf("%s\n", strerrorname_np(errno));
    execlp("no-such-program-anywhere", "a", NULL);
    printf("%s\n", strerrorname_np(errno));
    execle("/", "a", "b", "c", "d", "e", "f", NULL, own);
    printf("%s\n", strerrorname_np(errno));
    pid_t pid;
    printf("%s\n", strerrorname_np(posix_spawn(&pid, "/nonexistent", NULL, NULL, argv_, own)));
}

/* Many arguments and many variables. */
static void many(char *self) {
    int n = 20000;
    char **list = calloc(n + 2, sizeof *list), **env = calloc(n + 1, sizeof *env);
    list[0] = "counted";
    for (int i = 0; i < n; i++) list[i + 1] = "x", env[i] = "Y=1";
    pid_t pid = vfork();
    if (pid == 0) {
        execve(self, list, env);
        _exit(9);
    }
    after(waited(pid));
}

int main(int argc, char **argv) {
    if (!strcmp(argv[0], "quiet")) return 0;
    if (!strcmp(argv[0], "shown")) return show(argc, argv);
    if (!strcmp(argv[0], "counted")) {
        int n = 0;
        while (environ[n] && !strcmp(environ[n], "Y=1")) n++;
        return printf("%d %d\n", argc, n) < 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    char *how = argv[1], self[4096], command[5000];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len] = 0;
    snprintf(command, sizeof command, "ln -sf '%s' shown; PATH=.:$PATH; shown one 'two words'", self);
    char *folder = strdup(self);
    *strrchr(folder, '/') = 0;
#define WAY(name) if (!strcmp(how, name))
    WAY("execve") execve(self, argv_, own);
    WAY("empty") execve(self, argv_, none);
    WAY("null") execve(self, argv_, NULL);
    WAY("declined") execve(self, argv_, declined);
    WAY("setting") execve(self, argv_, other);
    WAY("execveat") execveat(AT_FDCWD, self, argv_, own, 0);
    WAY("fexecve") fexecve(open(self, O_RDONLY | O_CLOEXEC), argv_, own);
    WAY("syscall") syscall(SYS_execve, self, argv_, own);
    WAY("execvpe") setenv("PATH", folder, 1), execvpe("start", argv_, own);
    WAY("execle") execle(self, "shown", NULL, own);
    WAY("execle-long") execle(self, "shown", "1", "2", "3", "4", "5", "6", "7", "8", NULL, own);
    anew();
    WAY("execv") execv(self, argv_);
    WAY("execvp") setenv("PATH", folder, 1), execvp("start", argv_);
    WAY("execl") execl(self, "shown", "1", "2", "3", NULL);
    WAY("execl-short") execl(self, "shown", NULL);
    WAY("execl-long") execl(self, "shown", "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL);
    WAY("execlp") setenv("PATH", folder, 1), execlp("start", "shown", "1", "2", "3", "4", NULL);
    WAY("vfork") {
        pid_t pid = vfork();
        if (pid == 0) {
            execl(self, "shown", "1", "2", "3", "4", "5", "6", NULL);
            _exit(9);
        }
        after(waited(pid));
    }
    WAY("spawn") after(spawn(self, own, 0)), after(spawn(self, environ, 0));
    WAY("spawnp") setenv("PATH", folder, 1), after(spawn("start", own, 1)), after(spawn("start", NULL, 1));
    WAY("system") {
        after(system(command));
        after(WEXITSTATUS(system("exit 3")));
        after(WEXITSTATUS(system("kill -9 $$")));
        after(system(NULL));
        after(WEXITSTATUS(system("echo \"$0 it's\" 'done'; false")));
        after(WEXITSTATUS(system("if")));
    }
    WAY("popen") {
        char line[200];
        FILE *f = popen(command, "r");
        while (fgets(line, sizeof line, f)) fputs(line, stdout);
        after(pclose(f));
    }
    WAY("errors") errors(self);
    WAY("limits") limits(self);
    WAY("many") many(self);
    WAY("gone") unlink("libshunt.so"), execve(self, argv_, own);
    return 0;
}
