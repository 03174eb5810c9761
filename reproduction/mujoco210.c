// Environment steps of MuJoCo 2.1.0: reads states and actions, writes the next states (see mujoco210.py).

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mujoco.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL.xml FRAMES\n", argv[0]);
    return 2;
  }
  char error[1000] = "";
  mjModel* model = mj_loadXML(argv[1], NULL, error, sizeof error);
  if (!model) {
    fprintf(stderr, "%s: %s\n", argv[1], error);
    return 1;
  }
  mjData* data = mj_makeData(model);
  const int width = model->nq + model->nv + model->nu, frames = atoi(argv[2]);
  mjtNum* row = malloc(width * sizeof *row);
  while (fread(row, sizeof *row, width, stdin) == (size_t)width) {
    mj_resetData(model, data);  // the solver starts cold
    memcpy(data->qpos, row, model->nq * sizeof *row);
    memcpy(data->qvel, row + model->nq, model->nv * sizeof *row);
    memcpy(data->ctrl, row + model->nq + model->nv, model->nu * sizeof *row);
    for (int frame = 0; frame < frames; frame++) mj_step(model, data);
    fwrite(data->qpos, sizeof *row, model->nq, stdout);
    fwrite(data->qvel, sizeof *row, model->nv, stdout);
  }
  return 0;
}
