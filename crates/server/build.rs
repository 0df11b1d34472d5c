//! Places the functions that requests run beside each other in optimized programs (docs/decisions/0175).
//!
//! `TIDEGATE_LAYOUT=off` leaves the order to the linker, for linkers that do not read scripts with INSERT (mold).

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=requests.ld");
    println!("cargo::rerun-if-env-changed=TIDEGATE_LAYOUT");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|said| said == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("PROFILE", "release") && !is("TIDEGATE_LAYOUT", "off") {
        // Cargo keeps paths below OUT_DIR right when the checkout moves.
        let script = std::path::Path::new(&std::env::var_os("OUT_DIR").unwrap_or_default()).join("requests.ld");
        std::fs::copy("requests.ld", &script)?;
        println!("cargo::rustc-link-arg-bin=tidegate=-Wl,-T,{}", script.display());
    }
    Ok(())
}
