//! `cargo xtask bench --touched`: cache lines and pages that a request touches, in user code, as valgrind's lackey sees them.
//!
//! A server that sleeps between two requests finds its caches and translation buffers cold: there the figure that counts is how many
//! lines and pages a request reads, not how many instructions it runs. The trace of a single connection is cut at an instruction that
//! runs once per request. Nothing of the kernel is counted.

use super::BenchTask;
use super::scenario::Scenario;
use super::server::BenchServer;
use super::turns::turn_of_requests;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Scenarios by default.
const TOUCHED_OF: [&str; 5] = ["static-5k", "return", "proxy-1k", "tls-1k", "h2-5k"];
const LINE: u64 = 64;
const PAGE: u64 = 4096;
/// Requests of a run; the caches of files and connections are warm after the first ones.
const REQUESTS: u32 = 80;
/// Accesses that are kept: at least the last twenty requests.
const KEPT: usize = 1 << 20;
/// No request accesses memory less often.
const LEAST_ACCESSES: usize = 1000;
/// Occurrences of the instruction that cuts, in the kept accesses.
const CUTS: std::ops::RangeInclusive<usize> = 8..=REQUESTS as usize + 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    is_code: bool,
    address: u64,
    size: u64,
}

/// Numbers of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Footprint {
    instructions: usize,
    code_lines: usize,
    data_lines: usize,
    code_pages: usize,
    data_pages: usize,
}

/// Measures both servers, and writes `touched.md` into `folder`. With `order`, writes the functions of Tidegate's requests into that
/// file as well ([`linker_script`]).
///
/// # Errors
/// Of the scenarios' files, of valgrind, and of a trace without an instruction that runs once per request.
pub(super) fn measure_touched(task: &BenchTask<'_>) -> Result<(), String> {
    let &BenchTask { root, binary, client, options, folder } = task;
    let mut text = String::from(
        "# Lines and pages that a request touches\n\nUser code under valgrind's lackey; lines of 64 octets, pages of 4 KB.\n\n\
         | scenario | server | instructions | lines of code | lines of data | pages of code | pages of data |\n|---|---|---:|---:|---:|---:|---:|\n",
    );
    let mut functions: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, scenario) in options.scenarios_or(root, &TOUCHED_OF)?.into_iter().enumerate() {
        let origin = match (&scenario.origin, &scenario.php) {
            (Some(conf), _) => Some(BenchServer::origin(&scenario, conf, client)?),
            (None, Some(conf)) => Some(BenchServer::php(conf)?),
            (None, None) => None,
        };
        let port = origin.as_ref().map_or(0, |server| server.port);
        for (program, name) in [(&options.nginx, "nginx"), (&binary.to_path_buf(), "tidegate")] {
            let (request, base) = trace_request(&scenario, program, name, client, port)?;
            let all = footprint_of(&request);
            let line = format!(
                "| {} | {name} | {} | {} | {} | {} | {} |",
                scenario.name, all.instructions, all.code_lines, all.data_lines, all.code_pages, all.data_pages
            );
            eprintln!("    {line}");
            let _ = writeln!(text, "{line}");
            if name == "tidegate" && options.order.is_some() {
                for function in functions_of(&request, base, &symbols_of(program)?) {
                    functions.entry(function).or_default().push(index);
                }
            }
        }
    }
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let file = folder.join("touched.md");
    std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    match &options.order {
        Some(file) => std::fs::write(file, linker_script(&functions)).map_err(|e| format!("{}: {e}", file.display())),
        None => Ok(()),
    }
}

/// Returns the accesses of one request, and the address at which the program lies.
fn trace_request(
    scenario: &Scenario,
    program: &Path,
    name: &'static str,
    client: &Path,
    origin: u16,
) -> Result<(Vec<MemoryAccess>, u64), String> {
    let (server, trace) = BenchServer::traced(scenario, program, name, origin)?;
    let reader = std::thread::spawn(move || {
        let mut kept = VecDeque::with_capacity(KEPT);
        for line in BufReader::new(trace).split(b'\n').map_while(Result::ok) {
            let Some(access) = parse_access(&line) else { continue };
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(access);
        }
        kept
    });
    server.listens()?;
    turn_of_requests(scenario, &server, client, REQUESTS)?;
    let base = server.address_of(program)?;
    // Its end would push the requests out of the kept accesses.
    server.signal("KILL")?;
    drop(server);
    let kept: Vec<MemoryAccess> = reader.join().map_err(|_| "the trace's reader panicked")?.into();
    let request = cut_request(&kept).ok_or(format!("{name}: no instruction runs once per request"))?;
    Ok((request.to_vec(), base))
}

/// Reads a line of `--trace-mem=yes`: `I  04016b80,3`, ` L 1ffefff7e0,8`; S: store, M: load and store.
fn parse_access(line: &[u8]) -> Option<MemoryAccess> {
    let text = std::str::from_utf8(line).ok()?;
    let kind = text.get(..3)?;
    let is_code = match kind {
        "I  " => true,
        " L " | " S " | " M " => false,
        _ => return None,
    };
    let (address, size) = text.get(3..)?.trim().split_once(',')?;
    Some(MemoryAccess { is_code, address: u64::from_str_radix(address, 16).ok()?, size: size.parse().ok()? })
}

/// Returns the accesses between two executions of an instruction that runs once per request. As many executions as most instructions
/// have are the requests of the trace; among these the one with the most even distances cuts.
fn cut_request(all: &[MemoryAccess]) -> Option<&[MemoryAccess]> {
    let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, access) in all.iter().enumerate().filter(|(_, access)| access.is_code) {
        let of_address = places.entry(access.address).or_default();
        if of_address.len() <= *CUTS.end() {
            of_address.push(place);
        }
    }
    // The spread of the last distances, and the last but two executions with the one after it.
    let cut = |places: &[usize]| -> Option<(usize, usize, usize)> {
        let last = places.get(places.len().checked_sub(6)?..)?;
        let gaps = last.windows(2).map(|pair| pair[1] - pair[0]);
        let (least, most) = (gaps.clone().min()?, gaps.max()?);
        (least >= LEAST_ACCESSES).then_some((most - least, last[3], last[4]))
    };
    let cuts: Vec<_> = places
        .values()
        .filter(|places| CUTS.contains(&places.len()))
        .filter_map(|places| Some((places.len(), cut(places)?)))
        .collect();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for (count, _) in &cuts {
        *counts.entry(*count).or_default() += 1;
    }
    let (requests, _) = counts.into_iter().max_by_key(|(_, instructions)| *instructions)?;
    // Of equals the earliest, so that two runs agree.
    let best = cuts.into_iter().filter(|(count, _)| *count == requests).map(|(_, cut)| cut).min();
    best.and_then(|(_, from, to)| all.get(from..to))
}

fn footprint_of(request: &[MemoryAccess]) -> Footprint {
    let units = |is_code: bool, unit: u64| {
        let accesses = request.iter().filter(|access| access.is_code == is_code);
        accesses.flat_map(|a| a.address / unit..=(a.address + a.size.max(1) - 1) / unit).collect::<HashSet<_>>().len()
    };
    Footprint {
        instructions: request.iter().filter(|access| access.is_code).count(),
        code_lines: units(true, LINE),
        data_lines: units(false, LINE),
        code_pages: units(true, PAGE),
        data_pages: units(false, PAGE),
    }
}

/// A function: address, size and mangled name.
type Symbol = (u64, u64, String);

/// Of `nm`, sorted.
fn symbols_of(program: &Path) -> Result<Vec<Symbol>, String> {
    let output = std::process::Command::new("nm")
        .args(["--defined-only", "-S"])
        .arg(program)
        .output()
        .map_err(|e| format!("nm: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let symbol = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [address, size, "t" | "T" | "w" | "W", name] = words.as_slice() else { return None };
        Some((u64::from_str_radix(address, 16).ok()?, u64::from_str_radix(size, 16).ok()?, (*name).to_string()))
    };
    let mut symbols: Vec<Symbol> = text.lines().filter_map(symbol).collect();
    symbols.sort();
    if symbols.is_empty() { Err(format!("{}: no symbols", program.display())) } else { Ok(symbols) }
}

/// Returns the patterns of functions that ran ([`symbol_pattern`]).
fn functions_of(request: &[MemoryAccess], base: u64, symbols: &[Symbol]) -> HashSet<String> {
    let name = |access: &MemoryAccess| {
        let address = access.address.checked_sub(base)?;
        let at = symbols.partition_point(|symbol| symbol.0 <= address).checked_sub(1)?;
        let (begin, size, name) = symbols.get(at)?;
        (address < begin + size).then(|| symbol_pattern(name))
    };
    request.iter().filter(|access| access.is_code).filter_map(name).collect()
}

/// Replaces the hash at the end of a mangled name, which each version of the compiler makes anew, by `*`.
fn symbol_pattern(name: &str) -> String {
    let hash = name.match_indices("17h").map(|(at, _)| at).find(|at| {
        let digits = name.get(at + 3..at + 19);
        digits.is_some_and(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()))
            && name.get(at + 19..).is_some_and(|rest| rest.starts_with('E'))
    });
    match hash {
        Some(at) => format!("{}17h*", &name[..at]),
        None => name.to_string(),
    }
}

/// Returns a linker script that places these functions beside each other: those of all scenarios first, then by the scenarios that
/// run them. A pattern without a function is no error.
fn linker_script(functions: &BTreeMap<String, Vec<usize>>) -> String {
    let mut sorted: Vec<(&String, &Vec<usize>)> = functions.iter().collect();
    sorted.sort_by_key(|(name, scenarios)| (usize::MAX - scenarios.len(), *scenarios, *name));
    let lines: String = sorted.iter().map(|(name, _)| format!("    *(.text.{name})\n")).collect();
    format!(
        "/* Functions that requests run, beside each other (docs/decisions/0175).\n   \
         Made by: cargo xtask bench --touched --order FILE */\nSECTIONS {{\n  .text.requests : {{\n{lines}  }}\n}}\nINSERT BEFORE .text;\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_lackey() {
        let access = |is_code, address, size| Some(MemoryAccess { is_code, address, size });
        assert_eq!(parse_access(b"I  04016b80,3"), access(true, 0x0401_6b80, 3));
        assert_eq!(parse_access(b" M 1ffefff7e0,8"), access(false, 0x1f_feff_f7e0, 8));
        assert_eq!(parse_access(b"==12== lackey"), None);
    }

    #[test]
    fn a_request_lies_between_two_executions_of_an_instruction() {
        let code = |address| MemoryAccess { is_code: true, address, size: 4 };
        let data = |address| MemoryAccess { is_code: false, address, size: 8 };
        // A loop of 2,000 turns, with an instruction before it.
        let one: Vec<MemoryAccess> = std::iter::once(code(0x1000))
            .chain((0..2000).map(|n| if n % 2 == 0 { code(0x2000) } else { data(0x303c) }))
            .collect();
        let all: Vec<MemoryAccess> = (0..10).flat_map(|_| one.clone()).collect();
        let request = cut_request(&all).expect("a request");
        assert_eq!(request, one);
        let wanted = Footprint { instructions: 1001, code_lines: 2, data_lines: 2, code_pages: 2, data_pages: 1 };
        assert_eq!(footprint_of(request), wanted);
        assert_eq!(cut_request(&one), None);
    }

    #[test]
    fn names_lose_their_hash() {
        let mangled = "_ZN6worker7head_in13begin_request17h74363d140672092bE";
        assert_eq!(symbol_pattern(mangled), "_ZN6worker7head_in13begin_request17h*");
        assert_eq!(symbol_pattern("mi_malloc"), "mi_malloc");
        let symbols = [(0x100, 0x40, mangled.to_string()), (0x200, 0x10, "mi_malloc".to_string())];
        let request = [0x1100, 0x1204, 0x1300].map(|address| MemoryAccess { is_code: true, address, size: 4 });
        let found = functions_of(&request, 0x1000, &symbols);
        assert_eq!(found, HashSet::from(["mi_malloc".into(), "_ZN6worker7head_in13begin_request17h*".into()]));
        let script =
            linker_script(&BTreeMap::from([("a".into(), vec![1]), ("b".into(), vec![0, 1]), ("c".into(), vec![0])]));
        assert!(script.contains("    *(.text.b)\n    *(.text.c)\n    *(.text.a)\n"), "{script}");
    }
}
