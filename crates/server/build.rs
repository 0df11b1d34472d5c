//! Places the functions that requests run beside each other in optimized programs (docs/decisions/0175).
//!
//! `TIDEGATE_LAYOUT=off` leaves the order to the linker, for linkers that do not read scripts with INSERT (mold).

fn main() {
    println!("cargo::rerun-if-changed=requests.ld");
    println!("cargo::rerun-if-env-changed=TIDEGATE_LAYOUT");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|said| said == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("PROFILE", "release") && !is("TIDEGATE_LAYOUT", "off") {
        let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bin=tidegate=-Wl,-T,{folder}/requests.ld");
    }
}
