"""Declare the ops that importing torchvision asks for; they have no implementation and raise when called."""

import torch

# A library's declarations live as long as the object does.
_LIBRARY = torch.library.Library("torchvision", "DEF")
_LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
