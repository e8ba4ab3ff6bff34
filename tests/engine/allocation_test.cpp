#include "engine/slurm/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/error.h>

namespace lockstep::engine::slurm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST(SlurmHostlist, IsExpanded) {
  EXPECT_THAT(expand_hostlist("n1"), ElementsAre("n1"));
  EXPECT_THAT(expand_hostlist("n[1-3,7],gpu5"), ElementsAre("n1", "n2", "n3", "n7", "gpu5"));
  EXPECT_THAT(expand_hostlist("n[008-010]"), ElementsAre("n008", "n009", "n010"));
  EXPECT_THAT(expand_hostlist("r[1-2]n[0,3]-ib"), ElementsAre("r1n0-ib", "r1n3-ib", "r2n0-ib", "r2n3-ib"));
  for (const char* wrong : {"", "n[1", "n[3-1]", "n[a]", "n1,,n2", "n[1-9999999]"})
    EXPECT_THROW(expand_hostlist(wrong), EngineError) << wrong;
}

constexpr const char* kJob =
    "JobId=41 JobName=probe UserId=me(1000) GroupId=me(1000) Priority=1 Account=(null) QOS=normal JobState=RUNNING "
    "TimeLimit=1-02:00:00 "
    "Partition=main ReqNodeList=(null) NodeList=n[1-3],big BatchHost=n1 NumNodes=4 NumCPUs=14 TRES=cpu=14,node=4 "
    "JOB_GRES=gpu:a100:6   Nodes=n[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:a100:2(IDX:0-1)   Nodes=n3 CPU_IDs=0,2 Mem=0 GRES=  "
    " "
    "Nodes=big CPU_IDs=0-3 Mem=0 GRES=gpu:a100:2(IDX:0,3),nic:1(IDX:0) MinCPUsNode=1 MinMemoryNode=4G "
    "Command=/home/me/Nodes=x WorkDir=/home/me Power= TresPerNode=gres:gpu:2 \n";

TEST(SlurmJob, HasNodesWithWhatTheJobHasThere) {
  const Job job = parse_job(kJob);
  EXPECT_EQ(job.id, "41");
  EXPECT_EQ(job.partition, "main");
  EXPECT_EQ(job.qos, "normal");
  EXPECT_EQ(job.account, "");
  EXPECT_EQ(job.memory, "--mem=4G");
  EXPECT_EQ(job.time_limit, "1-02:00:00");
  EXPECT_THAT(job.nodes, ElementsAre(JobNode{"n1", 4, "gpu:a100:2", "41"}, JobNode{"n2", 4, "gpu:a100:2", "41"},
                                     JobNode{"n3", 2, "", "41"}, JobNode{"big", 4, "gpu:a100:2", "41"}));
}

TEST(SlurmJob, WithoutNodesIsAnError) {
  EXPECT_THROW(parse_job("slurm_load_jobs error: Invalid job id specified"), EngineError);
  EXPECT_THROW(parse_job("JobId=41 JobState=PENDING NodeList=(null) Command=x"), EngineError);
}

TEST(SlurmEnvironment, TellsAnAllocationOfManyNodes) {
  EXPECT_FALSE(is_in_allocation_of_many({}));
  EXPECT_FALSE(is_in_allocation_of_many({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "1"}}));
  EXPECT_TRUE(is_in_allocation_of_many({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "4"}}));
  EXPECT_FALSE(is_in_allocation_of_many(
      {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "4"}, {"LOCKSTEP_AGENT_ID", "in a worker"}}));
}

TEST(SlurmEnvironment, TellsAProgramThatRunsAsManyTasks) {
  const Environment tasks{{"SLURM_JOB_ID", "7"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "8"},
                          {"SLURM_STEP_NUM_NODES", "4"},
                          {"SLURM_PROCID", "3"}};
  EXPECT_THAT(many_tasks_problem(tasks, "python train.py"),
              AllOf(HasSubstr("srun has started this program 8 times"),
                    HasSubstr("sbatch -N 4 --wrap \"python train.py\""), HasSubstr("ScalingConfig(num_workers=8)")));
  EXPECT_THAT(many_tasks_problem(tasks, "python -c 'print(\"x\")'"),
              HasSubstr("--wrap 'python -c '\\''print(\"x\")'\\'''"));
  // A batch script is no step; a step of one task is as good; and so is a worker of such a step.
  EXPECT_EQ(many_tasks_problem({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}, "x"), "");
  Environment one = tasks;
  one["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ(many_tasks_problem(one, "x"), "");
  Environment worker = tasks;
  worker["LOCKSTEP_AGENT_ID"] = "1";
  EXPECT_EQ(many_tasks_problem(worker, "x"), "");
}

TEST(SlurmEnvironment, OfSrunHasNoOptionsOfTheJob) {
  EXPECT_EQ(environment_for_clients({{"HOME", "/home/me"},
                                     {"SLURM_CONF", "/etc/slurm.conf"},
                                     {"SLURM_NTASKS_PER_NODE", "2"},
                                     {"SLURM_GPUS", "8"},
                                     {"SLURMD_NODENAME", "n1"},
                                     {"SRUN_CPUS_PER_TASK", "4"},
                                     {"SALLOC_PARTITION", "x"},
                                     {"LOCKSTEP_AGENT_ID", "x"}}),
            (Environment{{"HOME", "/home/me"}, {"SLURM_CONF", "/etc/slurm.conf"}}));
}

}  // namespace
}  // namespace lockstep::engine::slurm
