// Stands in for Apple's Darwin module on other systems: what the modules call, with the types, the nullability and the
// values of Apple's SDK. Each declaration has a name of its own in C, since the system's module has the real one.
#pragma clang diagnostic ignored "-Wnullability-completeness"
#define SWIFT(name) __attribute__((swift_name(name)))

// Types

typedef unsigned long size_t;
typedef long ssize_t;
typedef long long d_off_t SWIFT("off_t");
typedef unsigned short d_mode_t SWIFT("mode_t");
typedef int d_dev_t SWIFT("dev_t");
typedef unsigned long long d_ino_t SWIFT("ino_t");
typedef unsigned short d_nlink_t SWIFT("nlink_t");
typedef unsigned int d_uid_t SWIFT("uid_t");
typedef unsigned int d_gid_t SWIFT("gid_t");
typedef int d_pid_t SWIFT("pid_t");
typedef long d_time_t SWIFT("time_t");
typedef unsigned int d_useconds_t SWIFT("useconds_t");
typedef unsigned int d_fsblkcnt_t SWIFT("fsblkcnt_t");
typedef unsigned int d_fsfilcnt_t SWIFT("fsfilcnt_t");

struct SWIFT("timespec") d_timespec { d_time_t tv_sec; long tv_nsec; };
struct SWIFT("winsize") d_winsize { unsigned short ws_row, ws_col, ws_xpixel, ws_ypixel; };
struct SWIFT("timeval") d_timeval { d_time_t tv_sec; int tv_usec; };
struct SWIFT("stat") d_stat {
  d_dev_t st_dev; d_mode_t st_mode; d_nlink_t st_nlink; d_ino_t st_ino; d_uid_t st_uid; d_gid_t st_gid; d_dev_t st_rdev;
  struct d_timespec st_atimespec, st_mtimespec, st_ctimespec, st_birthtimespec;
  d_off_t st_size; long long st_blocks; int st_blksize; unsigned st_flags, st_gen; int st_lspare; long long st_qspare[2];
};
struct SWIFT("statvfs") d_statvfs {
  unsigned long f_bsize, f_frsize; d_fsblkcnt_t f_blocks, f_bfree, f_bavail; d_fsfilcnt_t f_files, f_ffree, f_favail;
  unsigned long f_fsid, f_flag, f_namemax;
};
struct SWIFT("statfs") d_statfs {
  unsigned int f_bsize; int f_iosize;
  unsigned long long f_blocks, f_bfree, f_bavail, f_files, f_ffree;
  int f_fsid[2]; d_uid_t f_owner; unsigned int f_type, f_flags, f_fssubtype;
  char f_fstypename[16], f_mntonname[1024], f_mntfromname[1024]; unsigned int f_flags_ext, f_reserved[7];
};
struct SWIFT("flock") d_flock { d_off_t l_start, l_len; int l_pid; short l_type, l_whence; };
struct SWIFT("dirent") d_dirent {
  d_ino_t d_ino; unsigned long long d_seekoff; unsigned short d_reclen, d_namlen; unsigned char d_type; char d_name[1024];
};
typedef struct { int __dd_fd; long __dd_loc; } d_DIR SWIFT("DIR");

struct SWIFT("FILE") d_FILE { unsigned char *_p; int _r, _w; short _flags, _file; };

// Files

int d_stat(const char *, struct d_stat *) SWIFT("stat(_:_:)");
int d_lstat(const char *, struct d_stat *) SWIFT("lstat(_:_:)");
int d_fstat(int, struct d_stat *) SWIFT("fstat(_:_:)");
int d_fstatat(int, const char *, struct d_stat *, int) SWIFT("fstatat(_:_:_:_:)");
int d_faccessat(int, const char *, int, int) SWIFT("faccessat(_:_:_:_:)");
int d_statvfs(const char *restrict, struct d_statvfs *restrict) SWIFT("statvfs(_:_:)");
int d_fstatvfs(int, struct d_statvfs *) SWIFT("fstatvfs(_:_:)");
int d_statfs(const char *, struct d_statfs *) SWIFT("statfs(_:_:)");
int d_chmod(const char *, d_mode_t) SWIFT("chmod(_:_:)");
int d_fchmod(int, d_mode_t) SWIFT("fchmod(_:_:)");
int d_fchmodat(int, const char *, d_mode_t, int) SWIFT("fchmodat(_:_:_:_:)");
int d_flock(int, int) SWIFT("flock(_:_:)");
int d_close(int) SWIFT("close(_:)");
int d_dup(int) SWIFT("dup(_:)");
int d_fsync(int) SWIFT("fsync(_:)");
int d_ftruncate(int, d_off_t) SWIFT("ftruncate(_:_:)");
int d_truncate(const char *, d_off_t) SWIFT("truncate(_:_:)");
int d_access(const char *, int) SWIFT("access(_:_:)");
int d_symlink(const char *, const char *) SWIFT("symlink(_:_:)");
int d_mkfifo(const char *, d_mode_t) SWIFT("mkfifo(_:_:)");
int d_chflags(const char *, unsigned int) SWIFT("chflags(_:_:)");
int d_fchown(int, d_uid_t, d_gid_t) SWIFT("fchown(_:_:_:)");
int d_lchown(const char *, d_uid_t, d_gid_t) SWIFT("lchown(_:_:_:)");
int d_link(const char *, const char *) SWIFT("link(_:_:)");
int d_linkat(int, const char *, int, const char *, int) SWIFT("linkat(_:_:_:_:_:)");
int d_unlink(const char *) SWIFT("unlink(_:)");
int d_unlinkat(int, const char *, int) SWIFT("unlinkat(_:_:_:)");
int d_rmdir(const char *) SWIFT("rmdir(_:)");
int d_mkdir(const char *, d_mode_t) SWIFT("mkdir(_:_:)");
d_mode_t d_umask(d_mode_t) SWIFT("umask(_:)");
int d_mkdirat(int, const char *, d_mode_t) SWIFT("mkdirat(_:_:_:)");
int d_rename(const char *, const char *) SWIFT("rename(_:_:)");
int d_renameat(int, const char *, int, const char *) SWIFT("renameat(_:_:_:_:)");
int d_futimens(int, const struct d_timespec[2]) SWIFT("futimens(_:_:)");
ssize_t d_read(int, void *, size_t) SWIFT("read(_:_:_:)");
ssize_t d_write(int, const void *, size_t) SWIFT("write(_:_:_:)");
ssize_t d_pread(int, void *, size_t, d_off_t) SWIFT("pread(_:_:_:_:)");
ssize_t d_pwrite(int, const void *, size_t, d_off_t) SWIFT("pwrite(_:_:_:_:)");
d_off_t d_lseek(int, d_off_t, int) SWIFT("lseek(_:_:_:)");
char *d_getcwd(char *, size_t) SWIFT("getcwd(_:_:)");
char *d_realpath(const char *restrict, char *restrict) SWIFT("realpath(_:_:)");
ssize_t d_readlink(const char *, char *, size_t) SWIFT("readlink(_:_:_:)");
d_DIR *d_opendir(const char *) SWIFT("opendir(_:)");
d_DIR *d_fdopendir(int) SWIFT("fdopendir(_:)");
struct d_dirent *d_readdir(d_DIR *) SWIFT("readdir(_:)");
int d_closedir(d_DIR *) SWIFT("closedir(_:)");
ssize_t d_fgetxattr(int, const char *, void *, size_t, unsigned, int) SWIFT("fgetxattr(_:_:_:_:_:_:)");
int d_fsetxattr(int, const char *, const void *, size_t, unsigned, int) SWIFT("fsetxattr(_:_:_:_:_:_:)");

// Processes and signals

typedef unsigned int d_sigset_t SWIFT("sigset_t");
typedef unsigned int d_nfds_t SWIFT("nfds_t");
typedef unsigned long long d_rlim_t SWIFT("rlim_t");
struct SWIFT("rusage") d_rusage {
  struct d_timeval ru_utime, ru_stime;
  long ru_maxrss, ru_ixrss, ru_idrss, ru_isrss, ru_minflt, ru_majflt, ru_nswap, ru_inblock, ru_oublock, ru_msgsnd, ru_msgrcv,
    ru_nsignals, ru_nvcsw, ru_nivcsw;
};
struct SWIFT("pollfd") d_pollfd { int fd; short events, revents; };
struct SWIFT("rlimit") d_rlimit { d_rlim_t rlim_cur, rlim_max; };
typedef unsigned int d_id_t SWIFT("id_t");
typedef unsigned int d_socklen_t SWIFT("socklen_t");
union SWIFT("sigval") d_sigval { int sival_int; void *sival_ptr; };
struct SWIFT("siginfo_t") d_siginfo_t {
  int si_signo, si_errno, si_code; d_pid_t si_pid; d_uid_t si_uid; int si_status; void *si_addr; union d_sigval si_value;
  long si_band; unsigned long __pad[7];
};
typedef enum { P_ALL, P_PID, P_PGID } d_idtype_t SWIFT("idtype_t");
typedef void *d_posix_spawnattr_t SWIFT("posix_spawnattr_t");
typedef void *d_posix_spawn_file_actions_t SWIFT("posix_spawn_file_actions_t");
int d_poll(struct d_pollfd *, d_nfds_t, int) SWIFT("poll(_:_:_:)");
int d_pipe(int *) SWIFT("pipe(_:)");
int d_socketpair(int, int, int, int *) SWIFT("socketpair(_:_:_:_:)");
int d_setsockopt(int, int, int, const void *, d_socklen_t) SWIFT("setsockopt(_:_:_:_:_:)");
int d_getsockopt(int, int, int, void *, d_socklen_t *) SWIFT("getsockopt(_:_:_:_:_:)");
int d_shutdown(int, int) SWIFT("shutdown(_:_:)");
ssize_t d_send(int, const void *, size_t, int) SWIFT("send(_:_:_:_:)");
ssize_t d_recv(int, void *, size_t, int) SWIFT("recv(_:_:_:_:)");
int d_dup2(int, int) SWIFT("dup2(_:_:)");
struct SWIFT("sockaddr") d_sockaddr { unsigned char sa_len, sa_family; char sa_data[14]; };
typedef unsigned char d_sa_family_t SWIFT("sa_family_t");
struct SWIFT("in_addr") d_in_addr { unsigned int s_addr; };
struct SWIFT("sockaddr_in") d_sockaddr_in {
  unsigned char sin_len; d_sa_family_t sin_family; unsigned short sin_port; struct d_in_addr sin_addr; char sin_zero[8];
};
struct SWIFT("sockaddr_un") d_sockaddr_un { unsigned char sun_len; d_sa_family_t sun_family; char sun_path[104]; };
int d_socket(int, int, int) SWIFT("socket(_:_:_:)");
int d_bind(int, const struct d_sockaddr *, d_socklen_t) SWIFT("bind(_:_:_:)");
int d_listen(int, int) SWIFT("listen(_:_:)");
int d_accept(int, struct d_sockaddr *, d_socklen_t *) SWIFT("accept(_:_:_:)");
int d_connect(int, const struct d_sockaddr *, d_socklen_t) SWIFT("connect(_:_:_:)");
int d_getsockname(int, struct d_sockaddr *, d_socklen_t *) SWIFT("getsockname(_:_:_:)");
struct SWIFT("addrinfo") d_addrinfo {
  int ai_flags, ai_family, ai_socktype, ai_protocol; d_socklen_t ai_addrlen; char *ai_canonname; struct d_sockaddr *ai_addr;
  struct d_addrinfo *ai_next;
};
int d_getaddrinfo(const char *, const char *, const struct d_addrinfo *, struct d_addrinfo **)
  SWIFT("getaddrinfo(_:_:_:_:)");
void d_freeaddrinfo(struct d_addrinfo *) SWIFT("freeaddrinfo(_:)");
const char *d_gai_strerror(int) SWIFT("gai_strerror(_:)");
int d_getnameinfo(const struct d_sockaddr *, d_socklen_t, char *, d_socklen_t, char *, d_socklen_t, int)
  SWIFT("getnameinfo(_:_:_:_:_:_:_:)");
struct SWIFT("passwd") d_passwd {
  char *pw_name, *pw_passwd; d_uid_t pw_uid; d_gid_t pw_gid; d_time_t pw_change; char *pw_class, *pw_gecos, *pw_dir, *pw_shell;
  d_time_t pw_expire;
};
int d_getpwnam_r(const char *, struct d_passwd *, char *, size_t, struct d_passwd **) SWIFT("getpwnam_r(_:_:_:_:_:)");
int d_chown(const char *, d_uid_t, d_gid_t) SWIFT("chown(_:_:_:)");
void d__exit(int) SWIFT("_exit(_:)") __attribute__((noreturn));
void d_exit(int) SWIFT("exit(_:)") __attribute__((noreturn));
d_pid_t d_waitpid(d_pid_t, int *, int) SWIFT("waitpid(_:_:_:)");
int d_waitid(d_idtype_t, d_id_t, struct d_siginfo_t *, int) SWIFT("waitid(_:_:_:_:)");
int d_setuid(d_uid_t) SWIFT("setuid(_:)");
int d_setgid(d_gid_t) SWIFT("setgid(_:)");
int d_setgroups(int, const d_gid_t *) SWIFT("setgroups(_:_:)");
int d_getdtablesize(void) SWIFT("getdtablesize()");
int d_sigemptyset(d_sigset_t *) SWIFT("sigemptyset(_:)");
int d_sigaddset(d_sigset_t *, int) SWIFT("sigaddset(_:_:)");
void (*_Nullable d_signal(int, void (*_Nullable)(int)))(int) SWIFT("signal(_:_:)");
char *d_strsignal(int) SWIFT("strsignal(_:)");
int d_getrlimit(int, struct d_rlimit *) SWIFT("getrlimit(_:_:)");
int d_setrlimit(int, const struct d_rlimit *) SWIFT("setrlimit(_:_:)");
int d_sysctlbyname(const char *, void *, size_t *, void *, size_t) SWIFT("sysctlbyname(_:_:_:_:_:)");
int d_getrusage(int, struct d_rusage *) SWIFT("getrusage(_:_:)");
long d_sysconf(int) SWIFT("sysconf(_:)");
char *d_getenv(const char *) SWIFT("getenv(_:)");
int d_setenv(const char *, const char *, int) SWIFT("setenv(_:_:_:)");
int d_unsetenv(const char *) SWIFT("unsetenv(_:)");
#pragma clang assume_nonnull begin
int d_posix_spawn(d_pid_t * _Nullable restrict, const char * restrict, const d_posix_spawn_file_actions_t _Nullable * _Nullable,
  const d_posix_spawnattr_t _Nullable * _Nullable restrict, char * _Nullable const * _Nonnull restrict,
  char * _Nullable const * _Nullable restrict) SWIFT("posix_spawn(_:_:_:_:_:_:)");
int d_posix_spawn_file_actions_init(d_posix_spawn_file_actions_t _Nullable *) SWIFT("posix_spawn_file_actions_init(_:)");
int d_posix_spawn_file_actions_destroy(d_posix_spawn_file_actions_t _Nullable *) SWIFT("posix_spawn_file_actions_destroy(_:)");
int d_posix_spawn_file_actions_adddup2(d_posix_spawn_file_actions_t _Nullable *, int, int) SWIFT("posix_spawn_file_actions_adddup2(_:_:_:)");
int d_posix_spawn_file_actions_addclose(d_posix_spawn_file_actions_t _Nullable *, int) SWIFT("posix_spawn_file_actions_addclose(_:_:)");
int d_posix_spawn_file_actions_addopen(d_posix_spawn_file_actions_t _Nullable * restrict, int, const char * restrict, int, d_mode_t)
  SWIFT("posix_spawn_file_actions_addopen(_:_:_:_:_:)");
int d_posix_spawnattr_init(d_posix_spawnattr_t _Nullable *) SWIFT("posix_spawnattr_init(_:)");
int d_posix_spawnattr_destroy(d_posix_spawnattr_t _Nullable *) SWIFT("posix_spawnattr_destroy(_:)");
int d_posix_spawnattr_setsigmask(d_posix_spawnattr_t _Nullable * restrict, const d_sigset_t * restrict) SWIFT("posix_spawnattr_setsigmask(_:_:)");
int d_posix_spawnattr_setsigdefault(d_posix_spawnattr_t _Nullable * restrict, const d_sigset_t * restrict) SWIFT("posix_spawnattr_setsigdefault(_:_:)");
int d_posix_spawnattr_setflags(d_posix_spawnattr_t _Nullable *, short) SWIFT("posix_spawnattr_setflags(_:_:)");
int d_posix_spawnattr_setpgroup(d_posix_spawnattr_t _Nullable *, d_pid_t) SWIFT("posix_spawnattr_setpgroup(_:_:)");
#pragma clang assume_nonnull end

// Memory, time, text

void *d_dlopen(const char *, int) SWIFT("dlopen(_:_:)");
void *d_dlsym(void *, const char *) SWIFT("dlsym(_:_:)");
void *d_malloc(size_t) SWIFT("malloc(_:)");
void *d_realloc(void *, size_t) SWIFT("realloc(_:_:)");
void d_free(void *) SWIFT("free(_:)");
int d_memcmp(const void *, const void *, size_t) SWIFT("memcmp(_:_:_:)");
void *d_memcpy(void *, const void *, size_t) SWIFT("memcpy(_:_:_:)");
void *d_memchr(const void *, int, size_t) SWIFT("memchr(_:_:_:)");
char *d_strdup(const char *) SWIFT("strdup(_:)");
size_t d_strlen(const char *) SWIFT("strlen(_:)");
long d_strtol(const char *, char **, int) SWIFT("strtol(_:_:_:)");
int d_strcmp(const char *, const char *) SWIFT("strcmp(_:_:)");
size_t d_strspn(const char *, const char *) SWIFT("strspn(_:_:)");
int d_strerror_r(int, char *, size_t) SWIFT("strerror_r(_:_:_:)");
void *d_mmap(void *, size_t, int, int, int, d_off_t) SWIFT("mmap(_:_:_:_:_:_:)");
int d_munmap(void *, size_t) SWIFT("munmap(_:_:)");
int d_sched_yield(void) SWIFT("sched_yield()");
int d_usleep(d_useconds_t) SWIFT("usleep(_:)");
typedef int d_clockid_t SWIFT("clockid_t");
int d_clock_gettime(d_clockid_t, struct d_timespec *) SWIFT("clock_gettime(_:_:)");
d_pid_t d_getpid(void) SWIFT("getpid()");
d_pid_t d_getppid(void) SWIFT("getppid()");
d_uid_t d_getuid(void) SWIFT("getuid()");
d_uid_t d_geteuid(void) SWIFT("geteuid()");
int d_kill(d_pid_t, int) SWIFT("kill(_:_:)");
int d_isatty(int) SWIFT("isatty(_:)");
struct d_FILE *d_fopen(const char *, const char *) SWIFT("fopen(_:_:)");
int d_fclose(struct d_FILE *) SWIFT("fclose(_:)");
int d_fputs(const char *, struct d_FILE *) SWIFT("fputs(_:_:)");
int d_fflush(struct d_FILE *) SWIFT("fflush(_:)");
double d_log(double) SWIFT("log(_:)");
double d_exp(double) SWIFT("exp(_:)");
double d_sqrt(double) SWIFT("sqrt(_:)");
double d_log10(double) SWIFT("log10(_:)");
double d_pow(double, double) SWIFT("pow(_:_:)");

// Threads

#pragma clang assume_nonnull begin
typedef struct d_opaque_pthread_t { long __sig; char __opaque[8176]; } *d_pthread_t SWIFT("pthread_t");
struct SWIFT("pthread_mutex_t") d_pthread_mutex_t { long __sig; char __opaque[56]; };
struct SWIFT("pthread_cond_t") d_pthread_cond_t { long __sig; char __opaque[40]; };
struct SWIFT("pthread_attr_t") d_pthread_attr_t { long __sig; char __opaque[56]; };
struct SWIFT("pthread_mutexattr_t") d_pthread_mutexattr_t { long __sig; char __opaque[8]; };
struct SWIFT("pthread_condattr_t") d_pthread_condattr_t { long __sig; char __opaque[8]; };
int d_pthread_create(d_pthread_t _Nullable * _Nonnull restrict, const struct d_pthread_attr_t * _Nullable restrict,
  void * _Nullable (* _Nonnull)(void *), void * _Nullable restrict) SWIFT("pthread_create(_:_:_:_:)");
int d_pthread_join(d_pthread_t, void * _Nullable * _Nullable) SWIFT("pthread_join(_:_:)");
int d_pthread_detach(d_pthread_t) SWIFT("pthread_detach(_:)");
int d_pthread_equal(d_pthread_t _Nullable, d_pthread_t _Nullable) SWIFT("pthread_equal(_:_:)");
d_pthread_t d_pthread_self(void) SWIFT("pthread_self()");
int d_pthread_attr_init(struct d_pthread_attr_t *) SWIFT("pthread_attr_init(_:)");
int d_pthread_attr_destroy(struct d_pthread_attr_t *) SWIFT("pthread_attr_destroy(_:)");
int d_pthread_attr_setstacksize(struct d_pthread_attr_t *, size_t) SWIFT("pthread_attr_setstacksize(_:_:)");
int d_pthread_mutex_init(struct d_pthread_mutex_t * restrict, const struct d_pthread_mutexattr_t * _Nullable restrict) SWIFT("pthread_mutex_init(_:_:)");
int d_pthread_mutex_destroy(struct d_pthread_mutex_t *) SWIFT("pthread_mutex_destroy(_:)");
int d_pthread_mutex_lock(struct d_pthread_mutex_t *) SWIFT("pthread_mutex_lock(_:)");
int d_pthread_mutex_unlock(struct d_pthread_mutex_t *) SWIFT("pthread_mutex_unlock(_:)");
int d_pthread_cond_init(struct d_pthread_cond_t * restrict, const struct d_pthread_condattr_t * _Nullable restrict) SWIFT("pthread_cond_init(_:_:)");
int d_pthread_cond_destroy(struct d_pthread_cond_t *) SWIFT("pthread_cond_destroy(_:)");
int d_pthread_cond_wait(struct d_pthread_cond_t * restrict, struct d_pthread_mutex_t * restrict) SWIFT("pthread_cond_wait(_:_:)");
int d_pthread_cond_signal(struct d_pthread_cond_t *) SWIFT("pthread_cond_signal(_:)");
int d_pthread_cond_broadcast(struct d_pthread_cond_t *) SWIFT("pthread_cond_broadcast(_:)");
#pragma clang assume_nonnull end

// Values

int *__error(void);
#define O_RDONLY 0
#define O_WRONLY 1
#define O_RDWR 2
#define O_NONBLOCK 4
#define O_APPEND 8
#define O_NOFOLLOW 0x100
#define O_CREAT 0x200
#define O_TRUNC 0x400
#define O_EXCL 0x800
#define O_EVTONLY 0x8000
#define O_DIRECTORY 0x100000
#define O_SYMLINK 0x200000
#define O_ACCMODE 3
#define O_DSYNC 0x400000
#define O_CLOEXEC 0x1000000
#define PATH_MAX 1024
void tzset(void);
#define LOCK_SH 1
#define LOCK_EX 2
#define LOCK_NB 4
#define LOCK_UN 8
#define F_RDLCK 1
#define F_UNLCK 2
#define F_WRLCK 3
#define F_GETFD 1
#define F_SETFD 2
#define F_GETFL 3
#define F_SETFL 4
#define F_GETLK 7
#define F_SETLK 8
#define F_SETLKW 9
#define F_GETPATH 50
#define F_FULLFSYNC 51
#define FD_CLOEXEC 1
#define AT_FDCWD (-2)
#define AT_EACCESS 0x10
#define AT_SYMLINK_NOFOLLOW 0x20
#define AT_REMOVEDIR 0x80
#define UF_IMMUTABLE 0x2
#define UF_APPEND 0x4
#define SF_IMMUTABLE 0x20000
#define SF_APPEND 0x40000
#define F_OK 0
#define X_OK (1<<0)
#define W_OK (1<<1)
#define R_OK (1<<2)
#define SEEK_SET 0
#define SEEK_CUR 1
#define SEEK_END 2
#define DT_UNKNOWN 0
#define DT_DIR 4
#define DT_REG 8
#define DT_LNK 10
#define RTLD_NOW 2
#define PROT_NONE 0
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_ANON 0x1000
#define CLOCK_REALTIME 0
#define CLOCK_MONOTONIC 6
#define CLOCK_PROCESS_CPUTIME_ID 12
#define CLOCK_THREAD_CPUTIME_ID 16
#define RUSAGE_SELF 0
#define TIOCGWINSZ 0x40087468
#define POLLIN 1
#define POLLOUT 4
#define POLLHUP 16
#define POLLERR 8
#define AF_UNIX 1
#define AF_INET 2
#define ECONNABORTED 53
#define SOCK_STREAM 1
#define SOL_SOCKET 0xffff
#define SO_ERROR 0x1007
#define SO_NOSIGPIPE 0x1022
#define SHUT_WR 1
#define NI_MAXHOST 1025
#define NI_NUMERICHOST 2
#define SIGINT 2
#define SIGQUIT 3
#define STDIN_FILENO 0
#define STDOUT_FILENO 1
#define STDERR_FILENO 2
#define F_DUPFD_CLOEXEC 67
#define POSIX_SPAWN_SETPGROUP 2
#define POSIX_SPAWN_SETSIGDEF 4
#define POSIX_SPAWN_SETSIGMASK 8
#define POSIX_SPAWN_CLOEXEC_DEFAULT 0x4000
#define WNOHANG 1
#define WEXITED 4
#define WNOWAIT 0x20
#define MAXPATHLEN 1024
#define _SC_OPEN_MAX 5
#define _SC_PAGESIZE 29
#define RLIMIT_FSIZE 1
#define RLIMIT_NOFILE 8
#define SIGXFSZ 25
#define SIGILL 4
#define SIGTRAP 5
#define SIGABRT 6
#define SIGBUS 10
#define SIGSEGV 11
#define SIGKILL 9
#define SIGPIPE 13
#define SIGTERM 15
#define SIGHUP 1
#define SIGSTOP 17
#define SIGCONT 19
#define EPERM 1
#define ENOENT 2
#define ESRCH 3
#define EINTR 4
#define EIO 5
#define ENXIO 6
#define EBADF 9
#define ENOMEM 12
#define EACCES 13
#define EBUSY 16
#define EEXIST 17
#define EXDEV 18
#define ENOTDIR 20
#define EISDIR 21
#define EINVAL 22
#define ENFILE 23
#define EMFILE 24
#define ENOTTY 25
#define EFBIG 27
#define ENOSPC 28
#define EROFS 30
#define EMLINK 31
#define EPIPE 32
#define ERANGE 34
#define EAGAIN 35
#define EWOULDBLOCK EAGAIN
#define EINPROGRESS 36
#define ENOTSUP 45
#define ENOSYS 78
#define EOPNOTSUPP 102
#define ELOOP 62
#define ENAMETOOLONG 63
#define ENOTEMPTY 66
#define EDQUOT 69
#define ESTALE 70
#define ENOATTR 93
