//! scratch
use formwork_engine::*;
use formwork_model::*;
use std::sync::Arc;
use std::time::Instant;
fn cpu_s() -> f64 { let mut t = 0.0; for e in std::fs::read_dir("/proc/self/task").unwrap() { let s = std::fs::read_to_string(e.unwrap().path().join("schedstat")).unwrap_or_default(); t += s.split(' ').next().unwrap_or("0").parse::<f64>().unwrap_or(0.0); } t / 1e9 }
fn main() {
    let threads: usize = std::env::var("T").map_or(2, |t| t.parse().unwrap());
    let path = std::env::args().nth(1).unwrap();
    let t = Instant::now();
    let model = Arc::new(Model::load(path.as_ref(), &LoadOptions::default()).unwrap());
    let load = t.elapsed();
    let t = Instant::now();
    let mut b = CpuBackend::new(model.clone(), CpuConfig { kv_blocks: 1200, block_size: 32, threads, max_context: 8192 }).unwrap();
    println!("load {load:?} backend {:?} weights {} file {}", t.elapsed(), model.info().weight_bytes, model.info().file_bytes);
    let mut step = |rows: Vec<Row>| { let t = Instant::now(); let c = cpu_s(); let k = b.launch(StepInput { rows }).unwrap(); b.wait(&k).unwrap(); let e = if threads == 1 { cpu_s() - c } else { t.elapsed().as_secs_f64() }; b.finish(k, &[]).unwrap(); e };
    let which = std::env::args().nth(2).unwrap_or_default();
    if which.contains('s') { for (batch, tokens, context) in [(1,1,32),(8,1,32),(1,1,2048),(1,512,0)] { let p = profile_step(&model, ProfileOptions { shape: StepShape { batch, tokens, context }, threads, repeats: 7 }).unwrap();
      println!("{:?} {:.2} ms {:.0} tok/s ceilings {:?}", p.shape, p.seconds*1e3, p.tokens_per_second, p.ceilings); for o in &p.operations { println!("  {:22} {:5} {:8.3} ms  bw {:.2} ar {:.2}", o.name, o.calls, o.seconds*1e3, o.bandwidth_share, o.arithmetic_share); } } }
    if which.contains('d') {
    for (batch, ctx) in [(1, 32), (2, 32), (4, 32), (8, 32), (16, 32), (32, 32), (1, 512), (1, 2048), (1, 4096), (8, 1024)] {
        let n = if batch == 1 { 41 } else { 21 };
        let per: usize = (ctx + 64usize).div_ceil(32);
        let mut ts: Vec<f64> = (0..n).map(|i| step((0..batch).map(|s| Row { tokens: vec![1000 + i as u32 + s as u32], start: ctx, table: (0..per as u32).map(|x| s as u32 * per as u32 + x).collect(), wants_logits: true }).collect())).collect();
        ts.sort_by(|a, b| a.total_cmp(b));
        println!("decode b{batch} ctx{ctx}: min {:.2} ms med {:.2} ms -> {:.0} tok/s (best {:.0})", ts[0]*1e3, ts[n/2]*1e3, batch as f64 / ts[n/2], batch as f64 / ts[0]);
    }}
    if which.contains('p') {
    for p in [512usize, 2048] {
        let chunk = 512;
        let mut ts: Vec<f64> = (0..3).map(|_| (0..p / chunk).map(|c| step(vec![Row { tokens: (0..chunk as u32).map(|t| 500 + t * 7 % 9000).collect(), start: c * chunk, table: (0..(p / 32) as u32).collect(), wants_logits: true }])).sum()).collect();
        ts.sort_by(|a, b| a.total_cmp(b));
        println!("prefill {p}: min {:.1} ms -> {:.0} tok/s (med {:.0})", ts[0]*1e3, p as f64 / ts[0], p as f64 / ts[1]);
    }}
}
