#pragma once

namespace lockstep::train {

/// The exit code of a program whose run was preempted: EX_TEMPFAIL, try again later.
inline constexpr int kPreemptedCode = 75;

/// Inside a Slurm job, asks Slurm to start the job again (scontrol requeue), because its run was preempted. `signal`
/// brought the notice, or 0. After a SIGTERM the job is not requeued if its user has cancelled it. A failure is logged.
void requeue_slurm_job(int signal);

}  // namespace lockstep::train
