//! Tables of the main and events contexts (nginx: `nginx.c`, `ngx_event.c`).

use super::values::{
    Affinity, Connections, DebugConnections, DebugPoints, Environment, EventMethod, Modules, Priority,
    RefusedDirective, SandboxMode, ThreadPools, User, Workers,
};
use area::shared_store::SharedStore;
use conf_schema::value::{FilePath, Flag, Msec, Number, Offset};
use conf_schema::{ContextArea, FeatureTable, directives};
use observe::ErrorLogLines;

/// The tables' names.
pub const CORE: &str = "core";
pub const EVENTS: &str = "events";

directives! {
    pub struct Core from CoreInput {
        /// Runs in the background. Containers and service managers need `off`.
        daemon: Flag = "on",
        /// Starts worker processes under a master process. With `off` one process does everything, in the foreground
        /// and as the starting user; intended for development.
        master_process: Flag = "on",
        /// User and group of the worker process; the group defaults to the user's name. Without it a server started by
        /// root runs as `nobody`.
        user: User,
        /// Number of worker threads; `auto` uses one per available CPU.
        /// Differs: the workers are threads of one process; a crash ends all of them, and all are restarted. 0, with
        /// which nginx accepts no connection, is refused.
        worker_processes: Workers = "1",
        /// CPUs of each worker thread, as masks; `auto` binds each thread to its own CPU.
        worker_cpu_affinity: Affinity,
        /// Scheduling priority of the worker process, from -20 (highest) to 20 (lowest).
        worker_priority: Priority = "0",
        /// Maximum number of open files per worker.
        /// Differs: the workers share one process, whose limit is this number times `worker_processes`. Without it the
        /// soft limit is raised to the hard limit.
        worker_rlimit_nofile: Number,
        /// Maximum size of a core file of the worker process.
        worker_rlimit_core: Offset,
        /// Maximum duration of a graceful shutdown, and lifetime of older connections after a reload; then they are
        /// closed. 0: no limit.
        worker_shutdown_timeout: Msec = "0",
        /// Working directory of the worker process, where core files are written.
        working_directory: FilePath,
        /// File with the process id of the master.
        pid: Option<FilePath>,
        /// Lock file of nginx's accept mutex.
        /// No effect: there is no accept mutex.
        lock_file: FilePath,
        /// Destination (file, `stderr`, `syslog:server=...` or `memory:SIZE`) and minimum level of error messages. May
        /// be repeated.
        error_log: ErrorLogLines,
        /// Environment variable of the worker process: inherited, or set with `NAME=VALUE`. All others except TZ are
        /// removed.
        env: Environment,
        /// Loads an nginx module.
        /// No effect: supported modules are built in; -t warns and names the module.
        load_module: Modules,
        /// Compiles regular expressions to machine code.
        /// No effect: expressions are always compiled if the library supports it.
        pcre_jit: Flag = "off",
        /// Lets the kernel route QUIC packets to the worker of their connection.
        /// No effect: Tidegate routes packets to their connection without BPF, which would need privileges.
        quic_bpf: Flag = "off",
        /// Reuses unchanged certificates and keys after a reload.
        /// No effect: a reload always reads the files.
        ssl_object_cache_inheritable: Flag = "off",
        /// Defines a thread pool for `aio threads=NAME`: number of threads and maximum length of the queue. The pool
        /// `default` (32 threads, queue of 65536) always exists.
        /// Differs: threads start on demand and end after 30 idle seconds.
        thread_pool: ThreadPools,
        /// Interval at which nginx refreshes its cached time.
        /// No effect: the time is read once per turn of the event loop, without a system call.
        timer_resolution: Msec = "0",
        /// Keeps private keys in a separate process, which makes signatures for the workers. Workers neither hold
        /// private keys in memory nor can read their files. `data:` keys are an error; keys of `acme_issuer` remain in
        /// the worker process.
        ssl_key_isolation: Flag = "off",
        /// Action on an internal error, besides the `[alert]` message: `stop` halts the process for a debugger, `abort`
        /// ends it with a core file.
        debug_points: DebugPoints,
        /// Confines the master and the worker process. The kernel refuses system calls that a web server does not need,
        /// and the worker can access only the files and ports that the configuration needs. `strict` also restricts
        /// reading files and outgoing TCP connections to those that directives name. `log` refuses nothing; the kernel
        /// logs system calls that `on` would refuse. Every start warns if the kernel lacks seccomp or Landlock.
        sandbox: SandboxMode = "on",
        /// Connects this server with others by a store: Redis or Valkey (one server, Sentinels, a cluster), or a folder.
        /// Zones with `sync` are shared over it. Requests never wait for the store, and the server starts without it;
        /// `fallback` says how limits count while it is not there: each server admits its part of the rate (`local`),
        /// the whole rate (`open`), or nothing (`deny`).
        shared_store: SharedStore,
        /// OpenSSL engine.
        /// Refused: OpenSSL engines are not supported; keys are read from files.
        ssl_engine: RefusedDirective,
        /// File of the Google performance tools.
        /// Refused: profile with perf, which needs no library in the program.
        google_perftools_profiles: RefusedDirective,
    }
}

directives! {
    pub struct Events from EventsInput {
        /// Maximum number of connections, to clients and upstream servers, per worker thread.
        worker_connections: Connections = "512",
        /// Event method.
        /// Differs: only `epoll` is supported.
        r#use: EventMethod = "epoll",
        /// Accepts all pending connections at once.
        multi_accept: Flag = "off",
        /// Lets workers accept in turns.
        /// No effect: every worker has its own listening sockets, and the kernel distributes connections.
        accept_mutex: Flag = "off",
        /// Delay before a worker tries again to accept connections.
        /// No effect: see accept_mutex.
        accept_mutex_delay: Msec = "500ms",
        /// Turns of the event loop above this time are logged with the level `warn`; 0 and `timer_resolution` disable
        /// the messages.
        stall_threshold: Msec = "1000ms",
        /// Enables debug messages for some clients.
        /// No effect: there are no debug messages; -t warns.
        debug_connection: DebugConnections,
        /// Maximum number of asynchronous file operations per worker.
        /// No effect: there is no such queue.
        worker_aio_requests: Number = "32",
        /// Number of events fetched from the kernel at once.
        /// No effect: the runtime decides.
        epoll_events: Number = "512",
        /// Number of changes passed to kqueue at once.
        /// Refused: it configures an event method of other systems; Linux uses epoll.
        kqueue_changes: RefusedDirective,
        /// Number of events fetched from kqueue at once.
        /// Refused: it configures an event method of other systems; Linux uses epoll.
        kqueue_events: RefusedDirective,
        /// Number of events fetched from an event port at once.
        /// Refused: it configures an event method of other systems; Linux uses epoll.
        eventport_events: RefusedDirective,
        /// Number of changes written to /dev/poll at once.
        /// Refused: it configures an event method of other systems; Linux uses epoll.
        devpoll_changes: RefusedDirective,
        /// Number of events fetched from /dev/poll at once.
        /// Refused: it configures an event method of other systems; Linux uses epoll.
        devpoll_events: RefusedDirective,
        /// Reads data while accepting, on Windows.
        /// Refused: it configures an event method of other systems; Linux uses epoll.
        acceptex_read: RefusedDirective,
        /// Number of threads for I/O completion ports.
        /// Refused: it configures an event method of other systems; Linux uses epoll.
        iocp_threads: RefusedDirective,
        /// Number of pending AcceptEx calls.
        /// Refused: it configures an event method of other systems; Linux uses epoll.
        post_acceptex: RefusedDirective,
    }
}

pub fn core_tables() -> Vec<FeatureTable> {
    vec![Core::table(CORE, ContextArea::Main), Events::table(EVENTS, ContextArea::Main)]
}
