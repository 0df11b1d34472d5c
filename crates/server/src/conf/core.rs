//! The tables of the main and events contexts (nginx: `nginx.c`, `ngx_event.c`).

use super::values::{
    Affinity, Connections, DebugConnections, DebugPoints, Environment, Method, Modules, Priority, Refused, ThreadPools,
    User, Workers,
};
use conf_schema::value::{FilePath, Flag, Msec, Number, Offset};
use conf_schema::{Area, Table, directives};
use observe::ErrorLogLines;

/// The tables' names.
pub const CORE: &str = "core";
pub const EVENTS: &str = "events";

directives! {
    /// What stands outside of every block.
    pub struct Core from CoreInput {
        /// Whether the server goes into the background. Containers and supervisors want `off`.
        daemon: Flag = "on",
        /// Whether a master process watches over the worker process. With `off` one process, in the foreground of itself,
        /// does everything, without changing its user; meant for development.
        master_process: Flag = "on",
        /// The user (and group; the one of the same name otherwise) that the worker process runs as. Without it a server
        /// that root starts serves as `nobody`.
        user: User,
        /// How many worker threads serve. `auto` takes one for every CPU that the process may use.
        /// Differs: the workers are threads of one process; a crash in one takes all, and all are started again. 0, with which nginx
        /// listens and answers nobody, is refused.
        worker_processes: Workers = "1",
        /// The CPUs of every worker thread, as masks; `auto` gives every thread a CPU of its own.
        worker_cpu_affinity: Affinity,
        /// The scheduling priority of the worker process, from -20 (first) to 20 (last).
        worker_priority: Priority = "0",
        /// How many descriptors a worker may have open.
        /// Differs: the workers share one process, whose limit is this number times `worker_processes`. Where it is not set,
        /// the soft limit is raised to the hard one.
        worker_rlimit_nofile: Number,
        /// The largest core file of the worker process.
        worker_rlimit_core: Offset,
        /// How long a graceful stop waits for connections in use, and how long after a reload the connections that were there
        /// before it may stay; later they are closed. With 0 a stop waits for as long as it takes, and connections outlive
        /// reloads.
        worker_shutdown_timeout: Msec = "0",
        /// The directory the worker process runs in, which is where core files go.
        working_directory: FilePath,
        /// The file that holds the master's process id.
        pid: Option<FilePath>,
        /// Where nginx keeps its accept mutex on systems without atomics.
        /// No effect: there is no accept mutex.
        lock_file: FilePath,
        /// Where messages go: a file, `stderr`, `syslog:server=...` or `memory:SIZE`, and how grave they must be.
        /// Several lines write to several places.
        error_log: ErrorLogLines,
        /// An environment variable that the worker process keeps, or gets with the value written here. All others but TZ
        /// are removed.
        env: Environment,
        /// Loads a module of nginx.
        /// No effect: what this version does is built in; -t warns and names the module.
        load_module: Modules,
        /// Whether regular expressions are compiled to machine code.
        /// No effect: they are, wherever the library can.
        pcre_jit: Flag = "off",
        /// Whether certificates and keys that did not change are taken over by a reload.
        /// No effect: a reload always brings what is on the disk.
        ssl_object_cache_inheritable: Flag = "off",
        /// A pool of threads that wait for slow disks, for "aio threads=NAME": how many threads, and how many reads may wait for
        /// one. A pool named "default" (32 threads, 65536 reads) is there without being declared.
        /// Differs: threads are started when there is work and end after 30 seconds without.
        thread_pool: ThreadPools,
        /// How often the cached time is refreshed.
        /// No effect: the time is read once a turn of a thread's loop, which is no system call; coarser times would save nothing.
        timer_resolution: Msec = "0",
        /// What happens besides an `[alert]` line when a belief of the program turns out wrong: `stop` halts the process for
        /// a debugger, `abort` ends it with a core file.
        debug_points: DebugPoints,
        /// Names a device of OpenSSL.
        /// Refused: there are no OpenSSL engines here; keys are read from files.
        ssl_engine: Refused,
        /// Where profiles of the Google performance tools go.
        /// Refused: profile with perf, which needs no library in the program.
        google_perftools_profiles: Refused,
    }
}

directives! {
    /// What stands in `events { }`.
    pub struct Events from EventsInput {
        /// How many connections, to clients and to upstream servers, a worker thread may have open.
        worker_connections: Connections = "512",
        /// How to wait for events.
        /// Differs: `epoll` is the one way there is.
        r#use: Method = "epoll",
        /// Whether a worker accepts every waiting connection at once.
        multi_accept: Flag = "off",
        /// Whether workers take turns in accepting.
        /// No effect: every worker has sockets of its own, and the kernel deals connections out.
        accept_mutex: Flag = "off",
        /// How long a worker waits for its turn.
        /// No effect: see accept_mutex.
        accept_mutex_delay: Msec = "500ms",
        /// Turns debug messages on for some clients.
        /// No effect: this version writes no debug messages; -t warns.
        debug_connection: DebugConnections,
        /// How many asynchronous file operations a worker may have in flight.
        /// No effect: there is no such queue to size.
        worker_aio_requests: Number = "32",
        /// How many events are taken from the kernel at once.
        /// No effect: the runtime decides.
        epoll_events: Number = "512",
        /// How many changes are given to kqueue at once.
        /// Refused: it is about a way of waiting that other systems have; here it is epoll.
        kqueue_changes: Refused,
        /// How many events are taken from kqueue at once.
        /// Refused: as `kqueue_changes`.
        kqueue_events: Refused,
        /// How many events are taken from an event port at once.
        /// Refused: as `kqueue_changes`.
        eventport_events: Refused,
        /// How many changes are written to /dev/poll at once.
        /// Refused: as `kqueue_changes`.
        devpoll_changes: Refused,
        /// How many events are taken from /dev/poll at once.
        /// Refused: as `kqueue_changes`.
        devpoll_events: Refused,
        /// Whether Windows reads with a connection's acceptance.
        /// Refused: as `kqueue_changes`.
        acceptex_read: Refused,
        /// Threads that wait for completions.
        /// Refused: as `kqueue_changes`.
        iocp_threads: Refused,
        /// Acceptances that are asked for beforehand.
        /// Refused: as `kqueue_changes`.
        post_acceptex: Refused,
    }
}

pub fn tables() -> Vec<Table> {
    vec![Core::table(CORE, Area::Main), Events::table(EVENTS, Area::Main)]
}
