//! Finds libzeropoint: in the folder that ZEROPOINT_DIR names (`make c-api PREFIX=folder`), else by pkg-config.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=ZEROPOINT_DIR");
    println!("cargo:rustc-link-lib=zeropoint");
    if let Ok(directory) = env::var("ZEROPOINT_DIR") {
        println!("cargo:rustc-link-search=native={directory}/lib");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}/lib");
        return;
    }
    match Command::new("pkg-config").args(["--libs-only-L", "zeropoint"]).output() {
        Ok(found) if found.status.success() => {
            for word in String::from_utf8_lossy(&found.stdout).split_whitespace() {
                println!("cargo:rustc-link-search=native={}", word.trim_start_matches("-L"));
            }
        }
        _ => panic!("libzeropoint was not found: set ZEROPOINT_DIR to where it is installed, or PKG_CONFIG_PATH"),
    }
}
